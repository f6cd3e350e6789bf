/* Measures how alike two words are, to suggest the nearest known word for an unknown one. */
#ifndef BASE_EDIT_DISTANCE_H
#define BASE_EDIT_DISTANCE_H

/* The number of single-letter changes between two words, counting at most the first 63 letters of each. */
unsigned edit_distance(const char *a, const char *b);

#endif
