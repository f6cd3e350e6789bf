/* The compute threads of peer_sluice: each has an encoder and takes the next batch of a window until none is left. The
 * caller is one of them, so that a window of one batch wakes nobody. */
#ifndef BENCH_PEER_TEAM_H
#define BENCH_PEER_TEAM_H

#include "peer_load.h"

struct peer_team;

/* Owns: the caller ends it with peer_team_close, before the engine. */
struct peer_team *peer_team_open(struct engine *engine, unsigned threads);
void peer_team_close(struct peer_team *parallel);

/* Computes one window. */
void peer_team_embed_window(struct peer_team *parallel, const struct peer_load *load, uint32_t window);
/* Computes all windows, one after the other. */
void peer_team_embed(struct peer_team *parallel, const struct peer_load *load);

#endif
