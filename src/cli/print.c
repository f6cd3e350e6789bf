#include "cli/print.h"

#include <string.h>
#include <time.h>

#include "base/duration.h"
#include "base/utf8.h"
#include "operator/answers.h"

void print_bytes(FILE *to, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t size = utf8_printable(bytes + at, length - at);
        if (size > 0) {
            fwrite(bytes + at, 1, size, to);
        } else {
            fprintf(to, "\\x%02x", (unsigned char)bytes[at]);
            size = 1;
        }
        at += size;
    }
}

void print_time(FILE *to, uint64_t unix_ms)
{
    char text[32] = "";
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm utc;
    if (gmtime_r(&seconds, &utc)) { strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc); }
    fputs(text, to);
}

void print_pause(FILE *to, const struct pause *pause, uint64_t now_ms)
{
    char span[DURATION_TEXT];
    const char *between = " ";
    if (pause->since_ms > 0) {
        fputs(" since ", to);
        print_time(to, pause->since_ms);
        fprintf(to, " (%s ago)", duration_format(now_ms > pause->since_ms ? now_ms - pause->since_ms : 0, span));
        between = ", ";
    }
    if (pause->until_ms > 0) {
        fprintf(to, "%suntil ", between);
        print_time(to, pause->until_ms);
        fprintf(to, " (in %s)", duration_format(pause->until_ms > now_ms ? pause->until_ms - now_ms : 0, span));
        between = ", ";
    }
    if (pause->by[0] != '\0') {
        fprintf(to, "%sby ", between);
        print_bytes(to, pause->by, strlen(pause->by));
    }
    if (pause->why[0] != '\0') {
        fputs(": ", to);
        print_bytes(to, pause->why, strlen(pause->why));
    }
}

enum status print_json(struct buffer *line, struct err *err)
{
    buffer_string(line, "\n");
    bool good = buffer_ok(line);
    if (good) { fwrite(line->data, 1, line->length, stdout); }
    buffer_free(line);
    return good ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a line");
}

enum status print_reply(const char *id, const struct resp_value *reply, struct err *err)
{
    struct buffer line = {0};
    enum status status = answer_put_reply(&line, id, reply, err);
    if (status == STATUS_OK) { return print_json(&line, err); }
    buffer_free(&line);
    return status;
}
