/* The limits of Redis on replies and entries: see redis_limits.c. Only redis_limits.c writes struct redis_limits. */
#ifndef SCHEDULE_WORKER_REDIS_LIMITS_H
#define SCHEDULE_WORKER_REDIS_LIMITS_H

#include "schedule/worker.h"

/* Counts how often in a row the connection was closed while only this entry was read on it. */
struct cut_entry {
    enum request_class class;
    struct entry_id id;
    uint32_t cuts;
};

/* The limits of Redis, as far as they are known. */
struct redis_limits {
    uint64_t answer_bytes, answer_grows_at; /* the size of one answer; when to try twice as much */
    bool read_lost, alone_lost, claim_lost; /* READ, READ_OWN of one entry, or a claim was out when the connection
                                               broke */
    bool own_by_id;                         /* entries pending with us are listed by id, and read one at a time */
    struct cut_entry alone;                 /* the entry that is read alone, or the last such one */
    struct cut_entry entry;                 /* the last one with which the connection was lost */
    uint64_t entries_until;                 /* until then one proof against an entry is enough */
    uint64_t wary_until;                    /* until then large replies are sent one at a time */
    size_t reply_bytes;                     /* a reply of that length could not be sent, so … */
    uint64_t replies_until;                 /* … until then, no reply that is as long is sent */
};

/* Starts without known limits, for a new worker or a new server. */
void limits_open(struct worker *worker);

/* The most bytes that one answer should have. */
uint64_t limits_answer_bytes(const struct worker *worker);

/* The number of entries, at most `most`, that a claim may bring: `most` while no limit is known. */
uint32_t limits_claim(const struct worker *worker, enum request_class class, uint32_t most);

/* Lets answers grow again after a long while, when new entries are read. */
void limits_asked(struct worker *worker);

/* READ_OWN asks for this entry alone; 0-0: for any number of entries. */
void limits_reads_alone(struct worker *worker, enum request_class class, struct entry_id id);

/* READ_OWN was answered. `entries`: whole entries were requested. */
void limits_own_answered(struct worker *worker, bool failed, bool entries);

/* READ was answered. */
void limits_new_answered(struct worker *worker, bool failed);

/* A call that takes over or claims entries was not answered. */
void limits_claim_failed(struct worker *worker);

/* EVENT_CONNECTED, before settle_connected: learns from the loss about reads and claims that were out. */
void limits_connected(struct worker *worker, enum loss loss);

/* Returns whether an entry of our own lists that is not held cannot be read. */
bool limits_entry_refused(struct worker *worker, enum request_class class, struct entry_id id);

/* Returns whether this reply must be sent while no other large one is out. */
bool limits_sends_alone(const struct worker *worker, const struct request *request);

/* Returns whether this reply cannot be sent. If so, its request has its code, and the caller finishes it. */
bool limits_reply_refused(const struct worker *worker, struct request *request);

/* EVENT_CONNECTED: learns from the loss about a reply that waits to be sent. */
void limits_reply_unanswered(struct worker *worker, struct request *request, enum loss loss);

#endif
