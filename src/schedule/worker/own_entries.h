/* Entries that are pending in our name: see own_entries.c. Only own_entries.c writes struct own_entries. */
#ifndef SCHEDULE_WORKER_OWN_ENTRIES_H
#define SCHEDULE_WORKER_OWN_ENTRIES_H

#include "schedule/worker.h"

/* Entries that are pending in our name but that we do not hold. */
struct strays {
    bool listing;                       /* ACTION_LIST_OWN is out */
    bool reading;                       /* the READ_OWN that is out reads those found */
    bool more;                          /* some were taken: list again at once */
    uint64_t list_at, asked_ns;         /* when the next list is due, and when the last one was asked for */
    struct entry_id after[CLASS_COUNT]; /* where the pass through our pending list continues … */
    struct entry_id end[CLASS_COUNT];   /* … and after which it begins again; 0-0: at the end of the list */
    struct stray {
        enum request_class class;
        struct entry_id id;
    } found[OWN_LIST_MAX]; /* in the order of their classes and ids */
    uint32_t count;
};

/* The state of reads of our own entries. */
struct own_entries {
    uint64_t at; /* when to read our own pending lists; NEVER: they are known */
    enum request_class class;
    struct entry_id after;
    struct entry_id next; /* the next entry to read alone; 0-0: none */
    enum own_part part;   /* the part that the own read in flight brings */
    bool refused;         /* `next` cannot be read: only its address is requested */
    uint32_t count;
    bool reading; /* ACTION_READ_OWN is out */
    bool anew;    /* the own read in flight came too early: begin again */
    bool unsure;  /* a reclaim's answer or a lease was lost: own entries that we do not know may be suspects */
    struct strays strays;
};

/* Starts with nothing to read. */
void own_open(struct worker *worker);

/* Just connected: our own entries first. */
void own_connected(struct worker *worker);

/* Reads our own lists from the start, because entries may be pending with us that are not held. */
void own_read_again(struct worker *worker);

/* The same after a while, unless it is due sooner anyway. */
void own_read_after_ms(struct worker *worker, uint64_t ms);

/* From now on, entries of our own lists that we do not know may be suspects. */
void own_distrust(struct worker *worker);

/* EVENT_ENTRIES of READ_OWN, except for strays: notes where to continue. */
void own_answered(struct worker *worker, const struct event *event);

/* Admits the strays of an EVENT_ENTRIES of READ_OWN. False: it brings no strays. */
bool own_take_strays(struct worker *worker, const struct event *event);

/* Returns whether an entry of our own list may be admitted. */
bool own_has_room(const struct worker *worker, const struct entry *entry);

/* EVENT_OWN_LISTED: ids pending with us. */
void own_listed(struct worker *worker, const struct event *event);

/* Lists the entries that are pending in our name, about once a second, with a pulse. */
void own_advance(struct worker *worker);

/* Returns whether a read of our own entries must wait for a reply. */
bool own_waits(const struct worker *worker);

/* Asks for the next of our own entries. */
void own_read(struct worker *worker);

/* Returns whether a stray was found that has room. */
bool own_stray_fits(const struct worker *worker);

/* Reads strays of one class; no other read is out. False: there are none to read. */
bool own_read_strays(struct worker *worker);

#endif
