/* Prints other people's texts: whatever the bytes are, they stay on their line and cannot control the terminal. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "redis/pause.h"

/* Prints printable UTF-8 as it is, and all other bytes as \xNN. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Prints a unix time: "2026-11-27 12:00:01 UTC". Units: ms. */
void print_time(FILE *to, uint64_t unix_ms);

/* Prints the details of a pause that are known, after a space: " since 2026-11-27 12:00:01 UTC (12m ago), until ... UTC
 * (in 18m), by sluice-operator@web1: reindexing"; nothing if none are known. `now_ms`: Redis' unix ms. */
void print_pause(FILE *to, const struct pause *pause, uint64_t now_ms);

#endif
