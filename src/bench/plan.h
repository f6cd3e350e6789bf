/* `sluice plan`: the number of workers like this machine that a load needs, from the simulation of a queue
 * (bench/simulation.h) with the times of this machine's engine and tokeniser. */
#ifndef BENCH_PLAN_H
#define BENCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/report.h"
#include "bench/simulation.h"
#include "config/config.h"

/* The command's own options. */
struct plan_options {
    char *lengths;        /* a file of texts, one a line */
    int64_t rate;         /* requests a second */
    char *p99;            /* "200ms": 99 of 100 requests take no longer; NULL: only with `workers` */
    int64_t workers;      /* plan for this number; 0: as few as hold the p99 */
    int64_t beside_us;    /* time of a worker's cores that other programs there take for a request */
    char *price_per_hour; /* the price of a worker's machine; NULL: not given */
    bool json;
};

/* The load to plan for. Units: ns and requests a second. */
struct load_plan {
    struct simulation simulation; /* the plan sets workers, rate, for_ns and seed */
    double rate;
    double p99_ns;    /* 0: any */
    uint32_t workers; /* 0: as few as hold the p99 */
    double memory;    /* bytes of Redis' machine */
    double reply_s;   /* how long a reply stays in Redis */
};

enum { PLAN_WORKERS_MOST = 1000, PLAN_TRIES_MOST = 40 };

/* The limits, one of which is reached first as the rate grows. */
enum limit { LIMIT_ENGINE, LIMIT_REDIS, LIMIT_MEMORY, LIMITS };

extern const char *const limit_names[LIMITS];

/* The result of a plan. */
struct planned {
    struct planned_try {
        uint32_t workers;
        double p50_ms, p99_ms, busy_share, redis_share, batch_rows;
        bool holds;
    } tries[PLAN_TRIES_MOST], best; /* tries [try_count]: the simulations on the way; best: the answer */
    unsigned try_count;
    double idle_p99_ms;  /* of one worker with hardly any load */
    double most[LIMITS]; /* requests a second that each limit allows, with this many workers */
    enum limit gives_first;
};

/* Finds the number of workers. Errors: STATUS_BAD_INPUT (the load or the time cannot be reached; the message names the
 * first limit); those of simulation_run. `out` then has the tries so far. */
MUST_CHECK enum status plan_find(const struct load_plan *plan, struct planned *out, struct err *err);

/* Measures this machine, plans, and begins and fills the report, which must be all zero. Errors: STATUS_BAD_INPUT
 * naming an option; those of plan_find, models_find and texts_read. */
MUST_CHECK enum status plan_run(const struct config *config, const struct plan_options *options, struct report *report,
                                struct err *err);

#endif
