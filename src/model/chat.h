/* How the messages of a chat become the prompt that a model was trained on.
 *
 * The files of a model hold a program for that, its chat_template. It is not run: marks in it show which of a few known
 * formats it writes, and this file writes that format. */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/tokenizer.h"

struct chat;

struct chat_message {
    const char *role; /* "system", only as the first; "user", "assistant" */
    const char *text; /* [length], valid UTF-8 */
    size_t length;
};

/* Finds the chat format of a model directory. Owns: the caller ends it with chat_close. Errors: STATUS_UNSUPPORTED (no
 * template, or one of no known format), STATUS_BAD_INPUT, STATUS_IO, STATUS_NO_MEMORY. Thread: one at a time in the
 * process (cJSON). */
MUST_CHECK enum status chat_open(const char *directory, struct chat **out, struct err *err);

/* Frees it. NULL is allowed. */
void chat_close(struct chat *chat);

/* "chatml", "llama3", "inst", "gemma". */
const char *chat_format(const struct chat *chat);

/* Makes the token ids of a prompt after which the model writes the next answer. The text of a message is text only: the
 * names of special tokens in it do not become special tokens. Owns: the caller frees `*ids`. Errors: STATUS_BAD_INPUT
 * (an unknown role, a system message that is not the first, or none at all), STATUS_UNSUPPORTED (the format has no
 * system message); those of tokenizer_encode. Thread: any. */
MUST_CHECK enum status chat_encode(const struct chat *chat, const struct tokenizer *tokenizer,
                                   const struct chat_message *messages, uint32_t message_count, int32_t **ids,
                                   uint32_t *count, struct err *err);

enum { CHAT_MESSAGES_MAX = 1024 };

/* The same for messages in JSON: an array of at most CHAT_MESSAGES_MAX objects with `role`, a text, and `content`: a
 * text, or a list of {"type": "text", "text": ...}, which become its lines. Members that are null count as not given.
 * The bytes are valid UTF-8. Errors: STATUS_BAD_INPUT also for anything else; the message has the number of the
 * message, from 0, and the name of the member. */
MUST_CHECK enum status chat_encode_json(const struct chat *chat, const struct tokenizer *tokenizer, const char *json,
                                        size_t length, int32_t **ids, uint32_t *count, struct err *err);

#endif
