/* Reads of new entries: see read.c. Only read.c writes struct read. */
#ifndef SCHEDULE_WORKER_READ_H
#define SCHEDULE_WORKER_READ_H

#include "schedule/worker.h"

/* What the reads of a class have shown. */
struct read_class {
    double mean_tokens, mean_bytes; /* of an entry, moving means */
    double largest_bytes;           /* of recent entries; halved with every read */
    bool left_out;                  /* of reads, for lack of room */
    bool busy;                      /* the last read brought as many of its entries as it could */
    struct entry_id newest;         /* the last entry that a read brought; 0-0: none yet */
};

/* The state of reads. */
struct read {
    struct read_class classes[CLASS_COUNT];
    bool out;            /* ACTION_READ */
    uint32_t count;      /* of the read in flight, per class */
    bool small_turn;     /* the next read takes all classes, however small the room of one makes it */
    uint64_t unblock_at; /* no other unblock until then */
};

/* Starts with estimates of the weight of entries. */
void read_open(struct worker *worker);

/* EVENT_ENTRIES, of every kind of read. */
void read_entries(struct worker *worker, const struct event *event);

/* Learns from a request how many tokens an entry of its class has. */
void read_note_tokens(struct worker *worker, enum request_class class, uint32_t tokens);

/* The same for its bytes. */
void read_note_bytes(struct worker *worker, enum request_class class, double bytes);

/* The number of entries of a class that its credit allows, by their recent weight. */
uint32_t read_room(const struct worker *worker, enum request_class class);

/* The same for entries claimed ahead of their turn, which have a separate quarter of the credit. */
uint32_t read_room_ahead(const struct worker *worker, enum request_class class);

/* The bytes of each class that may be held for all devices together. */
uint64_t read_credit_bytes(const struct worker *worker);

/* The tokens of a class that may be held for all devices together. */
double read_credit_tokens(const struct worker *worker, enum request_class class);

/* The number of entries of a class, at most `most`, that fit into one answer by their recent size; at least 1. */
uint32_t read_max(const struct worker *worker, enum request_class class, uint32_t most);

/* Keeps one read in flight, and ends a blocked one if a better one is possible. */
void read_advance(struct worker *worker);

#endif
