/* The speed of batches: see pace.c. Only pace.c writes struct pace. */
#ifndef SCHEDULE_WORKER_PACE_H
#define SCHEDULE_WORKER_PACE_H

#include "schedule/tune.h"
#include "schedule/window.h"
#include "schedule/worker.h"

struct pace {
    struct cost cost; /* of a batch on one compute thread */
    struct tune tune;
    struct budget budget;
    struct cost_shape mean_row;        /* of recent rows */
    double second_tokens;              /* a second's work; at least a full batch for each one that may be out */
    uint64_t online_at, online_before; /* when the last two requests of class high or normal came; 0: never */
    uint64_t hurry_at;                 /* when the last urgent one came; 0: never */
};

/* Starts with the calibrated cost, the target and the full token budget of the options. */
void pace_open(struct worker *worker);

/* Takes over changed options. */
void pace_retune(struct worker *worker, const struct worker_options *old);

/* Notes that a request came that will be prepared. */
void pace_accepted(struct worker *worker, const struct request *request);

/* Learns the engine's speed and the mean row from a batch that has come back, if it succeeded. */
void pace_computed(struct worker *worker, const struct batch *batch);

/* A batch succeeded: a token budget that was halved grows again after a while. */
void pace_memory_sufficed(struct worker *worker);

/* Memory ran out for a batch of this extent (tokens, with padding): halves the token budget until such a batch exceeds
 * it. */
void pace_memory_lacked(struct worker *worker, uint32_t extent);

/* Measures how long a request took, now that its outcome is in Redis; for the target only if it was an ordinary run. */
void pace_answered(struct worker *worker, const struct request *request);

/* Returns whether producers wait for answers: two requests of class high or normal came recently. */
bool pace_is_online(const struct worker *worker);

/* Returns whether an urgent request came recently: one of class high, or one that expires within seconds. */
bool pace_is_hurried(const struct worker *worker);

/* Adds the limits of time to those of size. `limits->tokens` and `limits->now_ms` are set already. */
void pace_limits(const struct worker *worker, struct window_limits *limits);

/* Recomputes a second's work (second_tokens) after speed, devices or options have changed. */
void pace_second(struct worker *worker);

/* Rows per second with all compute threads busy, in full batches of recent texts; 0: unknown. */
double pace_rows_per_s(const struct worker *worker);

#endif
