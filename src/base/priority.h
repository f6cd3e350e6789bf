/* How much a thread insists on a core, where the kernel shares the cores out. Only downwards, which needs no rights,
 * and for good: the way back would need them. */
#ifndef BASE_PRIORITY_H
#define BASE_PRIORITY_H

/* The calling thread takes what is left of its core: a sixtieth where others want it, and it leaves it at once to
 * whoever wakes up. Where the kernel refuses, all stays as it was: that costs latency only. Thread: any. */
void priority_spare(void);

/* The calling thread, and those that it starts from now on, take a tenth of a core where others want all of it. */
void priority_background(void);

#endif
