#include "redis/queue_ends.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void queue_count(struct queue *queue, enum request_class class, int end)
{
    queue->ends->ended.requests[class][end]++;
    queue->ends->all[class][end]++;
}

void queue_count_ignored(struct queue *queue)
{
    queue->ends->ended.ignored++;
}

uint64_t queue_ended(const struct queue *queue)
{
    uint64_t sum = 0;
    for (int c = 0; c < CLASS_COUNT; c++) {
        for (int end = 0; end < ENDS; end++) { sum += queue->ends->all[c][end]; }
    }
    return sum;
}

static bool is_zero(const struct ended *ended)
{
    static const struct ended none;
    return memcmp(ended, &none, sizeof none) == 0;
}

bool queue_ends_uncounted(const struct queue *queue)
{
    return !is_zero(&queue->ends->counting) || !is_zero(&queue->ends->ended);
}

void queue_ends_counted(struct queue *queue)
{
    queue->ends->counting = (struct ended){0};
}

/* Counts that got no answer are sent again unchanged, and later ones wait for the next pulse. By their number the
 * script knows whether it has added them. */
void queue_add_ends(struct queue *queue, struct command *command)
{
    struct ended *ended = &queue->ends->ended, *counting = &queue->ends->counting;
    char text[(CLASS_COUNT * ENDS + 2) * 48], *at = text, *end_of = text + sizeof text;
    if (is_zero(counting) && !is_zero(ended)) {
        *counting = *ended;
        *ended = (struct ended){0};
        queue->ends->counted++;
    }
    text[0] = '\0';
    for (int c = 0; c < CLASS_COUNT; c++) {
        for (int end = 0; end < ENDS; end++) {
            uint64_t count = counting->requests[c][end];
            if (count > 0 && at == text) {
                at += snprintf(at, (size_t)(end_of - at), "%" PRIu64, queue->ends->counted);
            }
            if (count > 0) {
                at += snprintf(at, (size_t)(end_of - at), " %s:%s %" PRIu64, class_names[c], end_name(end), count);
            }
        }
    }
    if (counting->ignored > 0) { snprintf(at, (size_t)(end_of - at), " ignored %" PRIu64, counting->ignored); }
    command_text(command, text);
}
