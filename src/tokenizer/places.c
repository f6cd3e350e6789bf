/* The tokens of a text with the bytes that each stands for: what `tokenizers` calls offsets. A text goes through the
 * pipeline, whose steps then also say where each byte of their output came from (origin.h). Models give ids for bytes
 * of a piece; here they become bytes of the text.
 *
 * Source: the behaviour of tokenizers 0.23 (NormalizedString, Encoding; process_offsets for blanks). */
#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id, size_t *length)
{
    const struct decode_token *known = decode_tokens_find(&tokenizer->tokens, id);
    for (size_t i = 0; known && known->normal && i < tokenizer->added_count; i++) {
        if (tokenizer->added[i].id != id) { continue; }
        *length = tokenizer->added[i].length;
        return tokenizer->added[i].content;
    }
    *length = known ? known->length : 0;
    return known ? tokenizer->tokens.bytes + known->start : "";
}

struct placing {
    const struct tokenizer *tokenizer;
    const char *text;
    struct tokenizer_token *tokens;
};

/* The character that byte-level files write a blank with counts as one wherever it stands. */
static bool is_blank(uint32_t code_point)
{
    return code_point == 0x120 || (unicode_lookup(code_point)->flags & UNICODE_SPACE) != 0;
}

/* The number of blanks that a token's text begins and ends with. */
static void count_blanks(const char *text, size_t length, size_t *leading, size_t *trailing)
{
    bool all = true;
    *leading = *trailing = 0;
    for (size_t at = 0; at < length;) {
        bool blank = is_blank(utf8_next(text, &at));
        all &= blank;
        *leading += all;
        *trailing = blank ? *trailing + 1 : 0;
    }
}

/* Takes the blanks at the ends of a token's text off the bytes that it stands for. */
static void trim_token(const struct placing *placing, struct tokenizer_token *token, bool first, const char *name,
                       size_t length)
{
    size_t leading, trailing, from = token->from, until = token->until;
    count_blanks(name, length, &leading, &trailing);
    bool kept = placing->tokenizer->specials.trim == TRIM_BUT_FIRST && leading == 1 && (first || from == 0);
    for (; leading > 0 && !kept && from < until; leading--) { utf8_next(placing->text, &from); }
    for (; trailing > 0 && until > 0; trailing--) {
        do {
            until--;
        } while (((unsigned char)placing->text[until] & 0xC0) == 0x80);
    }
    token->from = (uint32_t)from;
    if (trailing == 0) { token->until = (uint32_t)(until > from ? until : from); }
}

void placing_put(struct id_sink *sink, int32_t id, const char *bytes, size_t length, bool own)
{
    struct placing *placing = sink->placing;
    const struct span *places = sink->placed.places + (bytes - sink->placed.bytes);
    struct tokenizer_token *token = &placing->tokens[sink->count];
    *token = (struct tokenizer_token){.id = id, .from = places[0].from, .until = places[length - 1].until};
    if (placing->tokenizer->specials.trim == TRIM_NOTHING) { return; }
    const char *name = own ? bytes : tokenizer_token_name(placing->tokenizer, id, &length);
    trim_token(placing, token, sink->count == 0, name, length);
}

static void put_specials(struct tokenizer_token *tokens, const struct special_ids *specials)
{
    for (uint32_t i = 0; i < specials->count; i++) {
        tokens[i] = (struct tokenizer_token){.id = specials->ids[i], .special = true};
    }
}

enum status tokenizer_tokens(const struct tokenizer *tokenizer, const char *text, size_t length, bool specials,
                             struct tokenizer_token **tokens, uint32_t *count, struct err *err)
{
    const struct special_ids *around = tokenizer->specials.single;
    size_t bound = tokenizer_bound(tokenizer, length), before = specials ? around[0].count : 0;
    *tokens = NULL;
    *count = 0;
    if (tokenizer->specials.trim == TRIM_TWICE) {
        return err_set(err, STATUS_UNSUPPORTED, "tokens have no places: post_processor trims blanks twice");
    }
    if (bound > UINT32_MAX || length > UINT32_MAX) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the tokens of %zu bytes", length);
    }
    struct tokenizer_token *list = malloc((bound + 1) * sizeof *list);
    if (!list) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu tokens", bound); }
    struct placing placing = {.tokenizer = tokenizer, .text = text, .tokens = list + before};
    struct id_sink sink = {.placing = &placing};
    enum status status = tokenizer_run_pipeline(tokenizer, &sink, text, length, err);
    for (size_t i = 0; i < sink.count && status == STATUS_OK; i++) {
        status = tokenizer_check_known(tokenizer, &placing.tokens[i].id, 1, err);
    }
    if (status == STATUS_OK) {
        if (specials) {
            put_specials(list, &around[0]);
            put_specials(list + before + sink.count, &around[1]);
        }
        *count = (uint32_t)(before + sink.count + (specials ? around[1].count : 0));
        *tokens = list;
    } else {
        free(list);
    }
    return status;
}
