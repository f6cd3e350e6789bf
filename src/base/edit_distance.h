/* How alike two words are, to name the nearest known one where a word is unknown. */
#ifndef BASE_EDIT_DISTANCE_H
#define BASE_EDIT_DISTANCE_H

/* The number of single-letter changes between two words, counting at most the first 63 letters of each. */
unsigned edit_distance(const char *a, const char *b);

#endif
