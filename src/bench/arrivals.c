#include "bench/arrivals.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"

static bool push(struct arrivals *out, size_t *capacity, uint64_t at_ns)
{
    if (out->count == *capacity) {
        size_t more = *capacity == 0 ? 1024 : 2 * *capacity;
        uint64_t *grown = realloc(out->at_ns, more * sizeof *grown);
        if (grown == NULL)
            return false;
        out->at_ns = grown;
        *capacity = more;
    }
    out->at_ns[out->count++] = at_ns;
    return true;
}

enum status arrivals_make(double rate, uint32_t burst, uint64_t for_ns, uint64_t seed, struct arrivals *out,
                          struct err *err)
{
    size_t capacity = 0;
    double now_ns = 0, mean_ns = (double)NS_PER_S * burst / rate;
    *out = (struct arrivals){0};
    do {
        for (uint32_t i = 0; i < burst; i++)
            if (!push(out, &capacity, (uint64_t)now_ns)) {
                free(out->at_ns);
                return err_set(err, STATUS_NO_MEMORY, "no memory for %zu arrivals", out->count);
            }
        now_ns += -log(1 - random_share(&seed)) * mean_ns;
    } while (now_ns < (double)for_ns);
    return STATUS_OK;
}
