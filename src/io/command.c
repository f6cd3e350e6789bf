/* Commands for Redis as bytes. The number of words comes first on the wire and is known last, so room is left for it.
 */
#include <string.h>

#include "io/resp.h"

enum { HEADER_ROOM = 24 };

static size_t put_number(char *end, uint64_t number)
{
    size_t digits = 0;
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
        digits++;
    } while (number);
    return digits;
}

void command_bytes(struct command *command, const void *bytes, size_t length)
{
    struct buffer *buffer = &command->buffer;
    char *to = buffer_reserve(buffer, length + (buffer->length ? HEADER_ROOM : 2 * HEADER_ROOM));
    if (!to) {
        return;
    }
    if (!buffer->length) {
        memset(to, ' ', HEADER_ROOM);
        buffer->length = HEADER_ROOM;
        to += HEADER_ROOM;
    }
    char number[20];
    size_t digits = put_number(number + sizeof number, length);
    *to++ = '$';
    memcpy(to, number + sizeof number - digits, digits);
    to += digits;
    memcpy(to, "\r\n", 2);
    if (length) {
        memcpy(to + 2, bytes, length);
    }
    memcpy(to + 2 + length, "\r\n", 2);
    buffer->length += 1 + digits + 2 + length + 2;
    command->words++;
}

void command_text(struct command *command, const char *text)
{
    command_bytes(command, text, strlen(text));
}

void command_number(struct command *command, uint64_t number)
{
    char text[20];
    size_t digits = put_number(text + sizeof text, number);
    command_bytes(command, text + sizeof text - digits, digits);
}

void command_list(struct command *command, size_t count, const char *const *words, const size_t *lengths)
{
    for (size_t i = 0; i < count; i++) {
        command_bytes(command, words[i], lengths ? lengths[i] : strlen(words[i]));
    }
}

enum status command_finish(struct command *command, const char **bytes, size_t *length, struct err *err)
{
    if (!buffer_ok(&command->buffer) || !command->words) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis command");
    }
    char *end = command->buffer.data + HEADER_ROOM;
    memcpy(end - 2, "\r\n", 2);
    size_t digits = put_number(end - 2, command->words);
    char *start = end - 2 - digits - 1;
    *start = '*';
    *bytes = start;
    *length = command->buffer.length - (size_t)(start - command->buffer.data);
    return STATUS_OK;
}

void command_free(struct command *command)
{
    buffer_free(&command->buffer);
    command->words = 0;
}
