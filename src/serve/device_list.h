/* Which devices a configuration wants: the text of `device`, read. */
#ifndef SERVE_DEVICE_LIST_H
#define SERVE_DEVICE_LIST_H

#include <stdbool.h>
#include <stdint.h>

enum { DEVICES_MAX = 32 };

/* Devices by their number, or all that there are. */
struct device_list {
    bool all;
    unsigned count; /* 0 for all */
    uint32_t numbers[DEVICES_MAX];
};

/* Reads "all", a number, or numbers with commas between them; the same number may stand there twice. False for anything
 * else, and for more than DEVICES_MAX numbers. */
bool device_list_parse(const char *text, struct device_list *list);

#endif
