/* Rows of tokens from a file, in the order in which an engine likes them, and where their vectors go. For peer_sluice.
 */
#ifndef BENCH_PEER_LOAD_H
#define BENCH_PEER_LOAD_H

#include "engine/engine.h"
#include "model/model.h"

struct peer_load;

/* Ends the process with a message. */
_Noreturn void peer_die(const char *format, ...) PRINTF_LIKE(1, 2);
void peer_must(enum status status, const struct err *err);
/* Zeroed memory, or the end of the process. Owns: the caller frees it. */
void *peer_need(size_t count, size_t size);

/* Reads MATERIAL/loads/NAME.ids, for so many threads; its texts are read when they are first asked for.
 * Owns: the caller ends it with peer_load_close. */
struct peer_load *peer_load_open(const char *material, const char *name, uint32_t dim, unsigned threads);
void peer_load_close(struct peer_load *load);
const char *peer_load_name(const struct peer_load *load);
uint32_t peer_load_rows(const struct peer_load *load);

/* Cuts the rows into windows of so many (0: one of all), sorts each by length, longest first, and cuts it into batches
 * of about one size, as many for each thread.
 */
void peer_load_lay_out(struct peer_load *load, uint32_t window);
uint32_t peer_load_windows(const struct peer_load *load);

/* The batches of a window, one after the other in memory; their outputs are the load's. */
const struct engine_batch *peer_load_batches(const struct peer_load *load, uint32_t window, uint32_t *count);

/* Tokenises all texts and lays out what came of them, so that it is counted in the time of whoever calls. */
void peer_load_tokenize(struct peer_load *load, const struct model *model, uint32_t window);
/* Tokenises all texts and only counts. */
uint64_t peer_load_count_tokens(struct peer_load *load, const struct model *model);

/* Writes the vectors of all rows as f32, in the order of the file. */
void peer_load_write(const struct peer_load *load, const char *path);

#endif
