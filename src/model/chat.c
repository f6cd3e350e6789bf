#include "model/chat.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/utf8.h"

enum { TEMPLATE_MAX_BYTES = 1 << 20, ESCAPED_QUOTE = 1 };

enum format_kind { CHATML, LLAMA3, GEMMA, INST };

/* A format: the texts around each message, and the one before the answer. INST has a function instead. */
struct format {
    enum format_kind kind;
    const char *name;
    const char *mark, *unlike; /* the templates of this format have the one and not the other, which may be NULL */
    const char *before_role, *after_role, *after_text, *answer;
    const char *assistant; /* what the role assistant is called */
    bool trims;            /* messages lose the white space around them */
};

static const struct format formats[] = {
    {CHATML, "chatml", "<|im_start|>", "<|im_sep|>", "<|im_start|>", "\n", "<|im_end|>\n", "<|im_start|>assistant\n",
     "assistant", false},
    {LLAMA3, "llama3", "<|start_header_id|>", NULL, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "assistant", true},
    {GEMMA, "gemma", "<start_of_turn>", NULL, "<start_of_turn>", "\n", "<end_of_turn>\n", "<start_of_turn>model\n",
     "model", true},
    {INST, "inst", "[INST]", NULL, .answer = "", .trims = false},
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

struct chat {
    const struct format *format;
    char *template;          /* with its string literals decoded */
    char begin[64], end[64]; /* bos_token, if the template writes it, and eos_token */
    char *system;            /* chatml: what a chat without a system message begins with; or NULL */
    bool thinks;             /* chatml: of answers before the last question, only the text after the thinking is kept */
    bool opens_thinking;     /* and the prompt begins the thinking of the next answer */
};

/* A prompt in the making: text whose special tokens count, and that of messages. */
struct prompt {
    const struct tokenizer *tokenizer;
    struct buffer text; /* not yet encoded */
    int32_t *ids;
    uint32_t count;
    enum status status;
    struct err *err;
};

/* Copies bos_token or eos_token, which is a text or an object with one. */
static void copy_token(const cJSON *config, const char *name, char *to, size_t size)
{
    const cJSON *field = json_field(config, name);
    const char *text = cJSON_GetStringValue(cJSON_IsObject(field) ? json_field(field, "content") : field);
    if (text && strlen(text) < size) { strcpy(to, text); }
}

/* The template in tokenizer_config.json: a text, or the one named "default" in a list. */
static const char *find_template(const cJSON *config)
{
    const cJSON *field = json_field(config, "chat_template"), *item;
    if (!cJSON_IsArray(field)) { return cJSON_GetStringValue(field); }
    cJSON_ArrayForEach(item, field)
    {
        const char *name = cJSON_GetStringValue(json_field(item, "name"));
        if (name && strcmp(name, "default") == 0) { return cJSON_GetStringValue(json_field(item, "template")); }
    }
    return NULL;
}

/* Decodes \n and \' in the string literals of a template, in place: some files have the characters themselves. A quote
 * that was escaped becomes U+0001, so that it ends no literal. */
static void decode_literals(char *template)
{
    char *to = template;
    for (const char *at = template; *at != '\0'; at++) {
        if (at[0] != '\\' || at[1] == '\0') {
            *to++ = *at;
        } else {
            at++;
            *to++ = *at == 'n' ? '\n' : *at == '\'' ? ESCAPED_QUOTE : *at;
        }
    }
    *to = '\0';
}

/* The system message that a ChatML template writes if a chat has none: the literal text of a whole one in it. */
static char *find_system(const char *template)
{
    static const char before[] = "<|im_start|>system\n";
    for (const char *at = strstr(template, before); at; at = strstr(at, before)) {
        at += sizeof before - 1;
        const char *end = strstr(at, "<|im_end|>"), *quote = strpbrk(at, "'\"");
        if (!end || end == at || (quote && quote < end)) { continue; }
        char *text = strndup(at, (size_t)(end - at));
        for (char *c = text; c && *c != '\0'; c++) { *c = *c == ESCAPED_QUOTE ? '\'' : *c; }
        return text;
    }
    return NULL;
}

static enum status read_template(struct chat *chat, const char *directory, const cJSON *config, struct err *err)
{
    struct buffer file = {0};
    enum status status = file_read_in(directory, "chat_template.jinja", TEMPLATE_MAX_BYTES, &file, err);
    if (status == STATUS_OK) {
        chat->template = file.data; /* a NUL follows */
        return STATUS_OK;
    }
    buffer_free(&file);
    if (status != STATUS_NOT_FOUND) { return status; }
    const char *text = find_template(config);
    if (!text) { return err_set(err, STATUS_UNSUPPORTED, "%s has no chat_template", directory); }
    chat->template = strdup(text);
    return chat->template ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a chat template");
}

static enum status fill_chat(struct chat *chat, const char *directory, const cJSON *config, struct err *err)
{
    TRY(read_template(chat, directory, config, err));
    for (int i = 0; i < FORMATS && !chat->format; i++) {
        const struct format *format = &formats[i];
        bool unlike = format->unlike && strstr(chat->template, format->unlike);
        if (strstr(chat->template, format->mark) && !unlike) { chat->format = format; }
    }
    if (!chat->format) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "the chat_template of %s has none of the formats chatml, llama3, gemma and inst", directory);
    }
    if (strstr(chat->template, "bos_token") || strstr(chat->template, "<|begin_of_text|>")) {
        copy_token(config, "bos_token", chat->begin, sizeof chat->begin);
    }
    copy_token(config, "eos_token", chat->end, sizeof chat->end);
    decode_literals(chat->template);
    if (chat->format->kind == CHATML) {
        chat->system = find_system(chat->template);
        chat->thinks = strstr(chat->template, "reasoning_content") && strstr(chat->template, "last_query_index");
        chat->opens_thinking = chat->thinks && strstr(chat->template, "<|im_start|>assistant\n<think>\n");
    }
    return STATUS_OK;
}

enum status chat_open(const char *directory, struct chat **out, struct err *err)
{
    cJSON *config = NULL;
    *out = NULL;
    struct chat *chat = calloc(1, sizeof *chat);
    if (!chat) { return err_set(err, STATUS_NO_MEMORY, "no memory for a chat format"); }
    enum status status = json_read(directory, "tokenizer_config.json", (size_t)64 << 20, &config, err);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND) { status = fill_chat(chat, directory, config, err); }
    cJSON_Delete(config);
    if (status == STATUS_OK) {
        *out = chat;
    } else {
        chat_close(chat);
    }
    return status;
}

void chat_close(struct chat *chat)
{
    if (!chat) { return; }
    free(chat->template);
    free(chat->system);
    free(chat);
}

const char *chat_format(const struct chat *chat)
{
    return chat->format->name;
}

/* Encodes the text that was put since the last time. */
static void encode_rest(struct prompt *prompt)
{
    int32_t *ids = NULL;
    uint32_t count = 0;
    if (prompt->status != STATUS_OK || prompt->text.length == 0) { return; }
    prompt->status =
        tokenizer_encode_whole(prompt->tokenizer, prompt->text.data, prompt->text.length, &ids, &count, prompt->err);
    prompt->text.length = 0;
    if (prompt->status != STATUS_OK) { return; }
    int32_t *all = realloc(prompt->ids, ((size_t)prompt->count + count + 1) * sizeof *all);
    if (all) {
        memcpy(all + prompt->count, ids, count * sizeof *all);
        prompt->ids = all;
        prompt->count += count;
    } else {
        prompt->status = err_set(prompt->err, STATUS_NO_MEMORY, "no memory for a prompt");
    }
    free(ids);
}

/* Puts the text of a message. The name of a special token in it is encoded in two parts, the first of which is its
 * first character. */
static void put_message_text(struct prompt *prompt, const char *text, size_t length)
{
    for (;;) {
        size_t at = tokenizer_find_special(prompt->tokenizer, text, length);
        if (at == length) { break; }
        size_t end = at;
        utf8_next(text, &end);
        buffer_append(&prompt->text, text, end);
        encode_rest(prompt);
        text += end;
        length -= end;
    }
    buffer_append(&prompt->text, text, length);
}

static bool is_space(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static struct chat_message trim_message(struct chat_message message)
{
    while (message.length > 0 && is_space(message.text[0])) {
        message.text++;
        message.length--;
    }
    while (message.length > 0 && is_space(message.text[message.length - 1])) { message.length--; }
    return message;
}

static bool is_role(const struct chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* A turn of "[INST] question [/INST] answer</s>". The templates differ in blanks: Llama 2 trims, and begins each turn
 * with its own <s>. */
static void put_inst(const struct chat *chat, struct prompt *prompt, const struct chat_message *system,
                     const struct chat_message *message, bool first)
{
    const char *template = chat->template;
    bool llama = strstr(template, "<<SYS>>");
    struct chat_message own = llama ? trim_message(*message) : *message;
    if (is_role(message, "assistant")) {
        bool blank = llama || strstr(template, "' ' + message") || strstr(template, "\" \" + message");
        buffer_string(&prompt->text, blank ? " " : "");
        put_message_text(prompt, own.text, own.length);
        buffer_format(&prompt->text, "%s%s", llama ? " " : "", chat->end);
        return;
    }
    buffer_format(&prompt->text, "%s[INST] ", llama && !first ? chat->begin : "");
    if (system) {
        buffer_string(&prompt->text, "<<SYS>>\n");
        put_message_text(prompt, system->text, system->length);
        buffer_string(&prompt->text, "\n<</SYS>>\n\n");
    }
    if (system) { /* the trimmed text begins before it */
        own.length += (size_t)(own.text - message->text);
        own.text = message->text;
    }
    put_message_text(prompt, own.text, own.length);
    bool blank = llama || strstr(template, " [/INST]");
    buffer_string(&prompt->text, blank ? " [/INST]" : "[/INST]");
}

/* Puts a message, whose text begins with `lead` and then with that of `inside`, which may be NULL. */
static void put_message(const struct chat *chat, struct prompt *prompt, const struct chat_message *message,
                        const char *lead, const struct chat_message *inside)
{
    const struct format *format = chat->format;
    struct chat_message own = format->trims ? trim_message(*message) : *message;
    const char *role = is_role(message, "assistant") ? format->assistant : message->role;
    buffer_format(&prompt->text, "%s%s%s", format->before_role, role, format->after_role);
    buffer_string(&prompt->text, lead);
    if (inside) {
        put_message_text(prompt, inside->text, inside->length);
        buffer_string(&prompt->text, "\n\n");
    }
    put_message_text(prompt, own.text, own.length);
    buffer_string(&prompt->text, format->after_text);
}

/* True if the model's template takes a system message. */
static bool takes_system(const struct chat *chat)
{
    if (chat->format->kind == INST) { return strstr(chat->template, "<<SYS>>"); }
    return chat->format->kind != GEMMA || strstr(chat->template, "first_user_prefix");
}

static enum status check_messages(const struct chat *chat, const struct chat_message *messages, uint32_t count,
                                  struct err *err)
{
    if (count == 0) { return err_set(err, STATUS_BAD_INPUT, "there is no message"); }
    for (uint32_t i = 0; i < count; i++) {
        bool system = is_role(&messages[i], "system");
        if (system && i > 0) {
            return err_set(err, STATUS_BAD_INPUT, "message %u: only the first may be a system message", i);
        }
        if (system && !takes_system(chat)) {
            return err_set(err, STATUS_UNSUPPORTED, "the %s format of this model has no system message",
                           chat->format->name);
        }
        if (!system && !is_role(&messages[i], "user") && !is_role(&messages[i], "assistant")) {
            return err_set(err, STATUS_BAD_INPUT, "message %u: role must be system, user or assistant, not \"%.40s\"",
                           i, messages[i].role);
        }
    }
    return STATUS_OK;
}

/* A user's message, unless it is what a tool has answered. */
static bool is_question(const struct chat_message *message)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    size_t length = message->length, end = sizeof close - 1;
    bool answer = length >= end && strncmp(message->text, open, sizeof open - 1) == 0 &&
                  strncmp(message->text + length - end, close, end) == 0;
    return is_role(message, "user") && !answer;
}

static const char *find_last(const char *text, size_t length, const char *part)
{
    const char *last = NULL, *end = text + length, *found = text;
    while ((found = memmem(found, (size_t)(end - found), part, strlen(part))) != NULL) { last = found++; }
    return last;
}

static struct chat_message skip_lines(struct chat_message message)
{
    while (message.length > 0 && message.text[0] == '\n') {
        message.text++;
        message.length--;
    }
    return message;
}

static struct chat_message trim_lines(struct chat_message message)
{
    message = skip_lines(message);
    while (message.length > 0 && message.text[message.length - 1] == '\n') { message.length--; }
    return message;
}

/* Puts an answer of Qwen3. Its thinking, up to </think>, is kept after the last question only, where the last answer
 * has one even if it is empty. Only the first </think> ends the thinking, and the text begins after the last one. */
static void put_thinking(const struct chat *chat, struct prompt *prompt, const struct chat_message *message, bool after,
                         bool last)
{
    static const char open[] = "<think>", close[] = "</think>";
    struct chat_message thinking = {.text = message->text}, text = *message;
    const char *first = memmem(text.text, text.length, close, sizeof close - 1);
    if (first) {
        const char *end = find_last(text.text, text.length, close) + sizeof close - 1;
        thinking.length = (size_t)(first - text.text);
        const char *begin = find_last(text.text, thinking.length, open);
        if (begin) {
            thinking.text = begin + sizeof open - 1;
            thinking.length = (size_t)(first - thinking.text);
        }
        text.length -= (size_t)(end - text.text);
        text.text = end;
        text = skip_lines(text);
    }
    thinking = trim_lines(thinking);
    buffer_format(&prompt->text, "%sassistant%s", chat->format->before_role, chat->format->after_role);
    if (after && (last || thinking.length > 0)) {
        text = skip_lines(text);
        buffer_string(&prompt->text, "<think>\n");
        put_message_text(prompt, thinking.text, thinking.length);
        buffer_string(&prompt->text, "\n</think>\n\n");
    }
    put_message_text(prompt, text.text, text.length);
    buffer_string(&prompt->text, chat->format->after_text);
}

static void put_messages(const struct chat *chat, struct prompt *prompt, const struct chat_message *messages,
                         uint32_t count)
{
    enum format_kind kind = chat->format->kind;
    struct chat_message own = {"system", "", 0};
    const struct chat_message *system = is_role(&messages[0], "system") ? &messages[0] : NULL;
    buffer_string(&prompt->text, chat->begin);
    if (system) {
        own = kind == LLAMA3 ? trim_message(*system) : *system;
        messages++;
        count--;
    }
    if (kind == LLAMA3 && strstr(chat->template, "Cutting Knowledge Date")) {
        /* From Llama 3.1 on; the date is the one that a template has for where it knows no clock. */
        put_message(chat, prompt, &own, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", NULL);
    } else if (kind == LLAMA3 || kind == CHATML) {
        if (!system && chat->system) { own = (struct chat_message){"system", chat->system, strlen(chat->system)}; }
        if (system || chat->system) { put_message(chat, prompt, &own, "", NULL); }
    }
    uint32_t question = count; /* the last one; without one, the end, as in the template */
    for (uint32_t i = 0; i < count; i++) { question = is_question(&messages[i]) ? i : question; }
    for (uint32_t i = 0; i < count; i++) {
        const struct chat_message *first = i == 0 && system ? &own : NULL;
        if (chat->thinks && is_role(&messages[i], "assistant")) {
            put_thinking(chat, prompt, &messages[i], i > question, i + 1 == count);
            continue;
        }
        if (kind == INST) {
            put_inst(chat, prompt, first, &messages[i], i == 0);
        } else { /* Gemma's system message is the beginning of the first question */
            put_message(chat, prompt, &messages[i], "", kind == GEMMA ? first : NULL);
        }
    }
    buffer_format(&prompt->text, "%s%s", chat->format->answer, chat->opens_thinking ? "<think>\n" : "");
}

enum status chat_encode(const struct chat *chat, const struct tokenizer *tokenizer, const struct chat_message *messages,
                        uint32_t message_count, int32_t **ids, uint32_t *count, struct err *err)
{
    struct prompt prompt = {.tokenizer = tokenizer, .err = err};
    *ids = NULL;
    *count = 0;
    TRY(check_messages(chat, messages, message_count, err));
    put_messages(chat, &prompt, messages, message_count);
    encode_rest(&prompt);
    if (prompt.status == STATUS_OK && !buffer_ok(&prompt.text)) {
        prompt.status = err_set(err, STATUS_NO_MEMORY, "no memory for a prompt");
    }
    buffer_free(&prompt.text);
    if (prompt.status == STATUS_OK) {
        *ids = prompt.ids;
        *count = prompt.count;
    } else {
        free(prompt.ids);
    }
    return prompt.status;
}

/* --- messages in JSON --- */

struct message_reader {
    struct lexer lexer;
    struct buffer texts; /* reserved for all of them, so it never moves */
    struct chat_message *messages;
    uint32_t count;
};

/* Reads a string and appends it. Returns whether it is one. */
static bool read_string(struct message_reader *reader)
{
    const char *bytes;
    size_t length;
    return lexer_take(&reader->lexer, '"') && lexer_string(&reader->lexer, &bytes, &length) &&
           buffer_json_decode(&reader->texts, bytes, length);
}

/* Moves past the member that is read if it is null, and so counts as not given; fails if it is one that changes the
 * prompt in the eyes of others. */
static enum status skip_member(struct message_reader *reader, const struct lexer_member *member, struct err *err)
{
    if (reader->lexer.at < reader->lexer.end && *reader->lexer.at == 'n' && lexer_scalar(&reader->lexer)) {
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_INPUT,
                   "message %u: the member %.*s is not known here and may change the result; remove it if it does not",
                   reader->count, member->length < 100 ? (int)member->length : 100, member->name);
}

/* Reads an object {"type": "text", "text": ...} and appends its text. */
static enum status read_part(struct message_reader *reader, struct err *err)
{
    struct lexer_member member = {0};
    bool typed = false, text = false;
    while (lexer_next_member(&reader->lexer, &member)) {
        const char *bytes;
        size_t length;
        if (lexer_member_is(&member, "type") && !typed) {
            typed = lexer_take(&reader->lexer, '"') && lexer_string(&reader->lexer, &bytes, &length);
            if (!typed || length != 4 || memcmp(bytes, "text", 4) != 0) {
                return err_set(err, STATUS_BAD_INPUT, "message %u: a part of content is of another type than text",
                               reader->count);
            }
        } else if (lexer_member_is(&member, "text") && !text) {
            text = read_string(reader);
            if (!text) {
                return err_set(err, STATUS_BAD_INPUT, "message %u: the text of a part must be a text", reader->count);
            }
        } else {
            TRY(skip_member(reader, &member, err));
        }
    }
    return member.whole && typed && text
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, "message %u: a part of content needs type and text", reader->count);
}

/* Reads a text, or a list of parts that are lines of it. */
static enum status read_content(struct message_reader *reader, struct err *err)
{
    struct lexer *lexer = &reader->lexer;
    if (!lexer_take(lexer, '[')) {
        return read_string(reader)
                   ? STATUS_OK
                   : err_set(err, STATUS_BAD_INPUT, "message %u: content must be a text or a list of parts with text",
                             reader->count);
    }
    for (bool first = true; first || lexer_take(lexer, ','); first = false) {
        if (!first) { buffer_string(&reader->texts, "\n"); }
        TRY(read_part(reader, err));
        lexer_skip_space(lexer);
    }
    return lexer_take(lexer, ']') ? STATUS_OK
                                  : err_set(err, STATUS_BAD_INPUT, "message %u: content is no list", reader->count);
}

static enum status read_message(struct message_reader *reader, struct err *err)
{
    struct chat_message message = {0};
    struct lexer_member member = {0};
    while (lexer_next_member(&reader->lexer, &member)) {
        bool role = lexer_member_is(&member, "role");
        if (!role && !lexer_member_is(&member, "content")) {
            TRY(skip_member(reader, &member, err));
            continue;
        }
        if (role ? message.role : message.text) {
            return err_set(err, STATUS_BAD_INPUT, "message %u: %s is given twice", reader->count,
                           role ? "role" : "content");
        }
        size_t start = reader->texts.length;
        if (role && !read_string(reader)) {
            return err_set(err, STATUS_BAD_INPUT, "message %u: role must be a text", reader->count);
        }
        if (!role) { TRY(read_content(reader, err)); }
        const char *text = reader->texts.data + start;
        size_t length = reader->texts.length - start;
        buffer_append(&reader->texts, "", 1);
        if (!role) {
            message.text = text;
            message.length = length;
        } else if (strlen(text) == length) {
            message.role = text;
        }
    }
    if (!member.whole || !message.role || !message.text) {
        return err_set(err, STATUS_BAD_INPUT, "message %u: must be an object with role and content", reader->count);
    }
    reader->messages[reader->count++] = message;
    return STATUS_OK;
}

static enum status read_messages(struct message_reader *reader, struct err *err)
{
    struct lexer *lexer = &reader->lexer;
    lexer_skip_space(lexer);
    if (!lexer_take(lexer, '[')) { return err_set(err, STATUS_BAD_INPUT, "not a JSON array of messages"); }
    lexer_skip_space(lexer);
    bool whole = lexer_take(lexer, ']');
    for (bool first = true; !whole && (first || lexer_take(lexer, ',')); first = false) {
        if (reader->count == CHAT_MESSAGES_MAX) {
            return err_set(err, STATUS_BAD_INPUT, "more than %d of them", CHAT_MESSAGES_MAX);
        }
        TRY(read_message(reader, err));
        lexer_skip_space(lexer);
    }
    whole = whole || lexer_take(lexer, ']');
    lexer_skip_space(lexer);
    return whole && lexer->at == lexer->end ? STATUS_OK
                                            : err_set(err, STATUS_BAD_INPUT, "not a JSON array of messages");
}

enum status chat_encode_json(const struct chat *chat, const struct tokenizer *tokenizer, const char *json,
                             size_t length, int32_t **ids, uint32_t *count, struct err *err)
{
    struct message_reader reader = {.lexer = {json, json + length},
                                    .messages = malloc(CHAT_MESSAGES_MAX * sizeof(struct chat_message))};
    *ids = NULL;
    bool room = buffer_reserve(&reader.texts, length + 1) && reader.messages;
    enum status status =
        room ? read_messages(&reader, err) : err_set(err, STATUS_NO_MEMORY, "no memory for the messages of a chat");
    if (status == STATUS_OK) { status = chat_encode(chat, tokenizer, reader.messages, reader.count, ids, count, err); }
    buffer_free(&reader.texts);
    free(reader.messages);
    return status;
}
