/* The work that Redis' memory allows: see redis_memory.c. Only redis_memory.c writes struct redis_memory. */
#ifndef SCHEDULE_WORKER_REDIS_MEMORY_H
#define SCHEDULE_WORKER_REDIS_MEMORY_H

#include "schedule/worker.h"

/* The work that Redis' memory allows. The counters only grow; requests that have begun and not ended will become
 * replies. */
struct redis_memory {
    enum memory_level level;
    uint64_t begun_bytes,
        ended_bytes;                  /* estimated replies: of all requests that ever began; of those that have ended */
    uint32_t begun;                   /* requests that began and have not ended */
    uint64_t ended_asked, ended_then; /* ended_bytes when the last pulse was sent, and when the last answered one was */
    uint64_t allowed;                 /* how far begun_bytes may exceed ended_then; UINT64_MAX: no limit */
    uint32_t turn_reads, turn_begins; /* MEMORY_CRITICAL: requests that may still be read, and begun, in this turn */
    uint64_t turn_used;               /* the most memory that Redis has used since the turn began */
    uint64_t turn_at;                 /* when the next turn is due however much Redis uses */
    uint32_t pause_ms;                /* between two turns that are due by time */
};

/* Starts without a limit. */
void memory_open(struct worker *worker);

/* The time from an answered pulse to the next one; shorter while requests wait for memory. Units: ms. */
uint64_t memory_look_ms(const struct worker *worker);

/* Notes that a pulse is sent: the memory that it reports will include replies of requests that have ended by now. */
void memory_asked(struct worker *worker);

/* Computes from the memory that a pulse reported how many bytes of replies may begin until the next one, and, while
 * memory is critical, whether it is our turn. */
void memory_pulsed(struct worker *worker);

/* Counts an entry that was read. */
void memory_admitted(struct worker *worker);

/* The number of entries that may be read now, at most `most`. */
uint32_t memory_reads(const struct worker *worker, uint32_t most);

/* The number of the first `most` requests of a list that may begin now. While memory is critical, the first of a turn
 * always may. */
uint32_t memory_begins(const struct worker *worker, const struct request_list *list, uint32_t most);

/* Counts the future reply of a request that begins, once. */
void memory_begun(struct worker *worker, struct request *request);

/* Counts a request that has ended, begun or not. */
void memory_ended(struct worker *worker, struct request *request);

#endif
