/* Prints other people's texts: whatever the bytes are, they stay on their line and cannot control the terminal. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/err.h"
#include "redis/pause.h"
#include "redis/resp.h"

/* Prints printable UTF-8 as it is, and all other bytes as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Prints a unix time: "2026-11-27 12:00:01 UTC". Units: ms. */
void print_time(FILE *to, uint64_t unix_ms);

/* Prints the details of a pause that are known, after a space: " since 2026-11-27 12:00:01 UTC (12m ago), until ... UTC
 * (in 18m), by sluice-operator@web1: reindexing"; nothing if none are known. `now_ms`: Redis' unix ms. */
void print_pause(FILE *to, const struct pause *pause, uint64_t now_ms);

/* Prints JSON and a line feed, and frees the buffer. Errors: STATUS_NO_MEMORY if the buffer is broken. */
MUST_CHECK enum status print_json(struct buffer *line, struct err *err);

/* Prints a reply as a line of JSON. Errors: as answer_put_reply, and then nothing is printed. */
MUST_CHECK enum status print_reply(const char *id, const struct resp_value *reply, struct err *err);

#endif
