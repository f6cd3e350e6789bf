/* Entries written as name, value, name, value, …, and the requests that they become: for the tests of requests and
 * their fields. */
#ifndef TEST_PARSING_H
#define TEST_PARSING_H

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "schedule/request.h"

#define ENTRY_MS UINT64_C(1795252518106) /* of every entry here; its sequence number is 7 */

static char query_name[] = "query", query_text[] = "query: ", empty_name[] = "empty", empty_text[] = "";
static const struct model_prompt prompts[] = {{query_name, query_text}, {empty_name, empty_text}};

static const struct request_rules rules = {
    .model_name = "mini",
    .model_id = "0123abcd",
    .encoding = ENCODING_JSON,
    .dim = 4,
    .max_tokens = 16,
    .max_text_bytes = 100,
    .max_inputs = 5,
    .default_ttl_s = 3600,
    .max_ttl_s = 7 * 86400,
    .error_ttl_s = 3600,
    .default_max_attempts = 4,
    .truncate = true,
    .normalize = true,
    .prompts = prompts,
    .prompt_count = 2,
    .into_keys = "  doc:* item:[0-9]  * ",
};

/* Parses an entry of name, value, …, NULL, by these rules, at that time of Redis' clock. */
static inline struct request *parse_with(const struct request_rules *with, uint64_t redis_ms, enum request_class class,
                                         enum entry_origin origin, const char *const *pairs)
{
    static struct entry_field fields[200];
    size_t count = 0;
    for (; pairs[2 * count] != NULL; count++) {
        fields[count] = (struct entry_field){pairs[2 * count], strlen(pairs[2 * count]), pairs[2 * count + 1],
                                             strlen(pairs[2 * count + 1])};
    }
    struct entry entry = {.class = class,
                          .id = {ENTRY_MS, 7},
                          .origin = origin,
                          .redis_ms = redis_ms,
                          .fields = fields,
                          .field_count = count};
    struct request *request = request_parse(with, &entry, 42);
    assert_non_null(request);
    return request;
}

/* The queue's model has that head. */
static inline struct request *parse_for(const struct model_head *head, const char *const *pairs)
{
    struct request_rules with = rules;
    with.head = head;
    return parse_with(&with, 0, CLASS_NORMAL, ORIGIN_NEW, pairs);
}

static inline struct request *parse_at(uint64_t redis_ms, enum request_class class, enum entry_origin origin,
                                       const char *const *pairs)
{
    return parse_with(&rules, redis_ms, class, origin, pairs);
}

static inline struct request *parse_as(enum request_class class, enum entry_origin origin, const char *const *pairs)
{
    return parse_at(0, class, origin, pairs);
}

#define PARSE(...) parse_as(CLASS_NORMAL, ORIGIN_NEW, (const char *const[]){__VA_ARGS__, NULL})

#define PARSE_FOR(head, ...) parse_for(head, (const char *const[]){__VA_ARGS__, NULL})

#define PARSE_WITH(rules, ...) parse_with(rules, 0, CLASS_NORMAL, ORIGIN_NEW, (const char *const[]){__VA_ARGS__, NULL})

/* Checks code and message of a request, and frees it. */
static inline void expect(struct request *request, enum reply_code code, const char *named)
{
    if (request->retry.code != code) {
        print_message("%s: %s\n", reply_code_name(request->retry.code), request->retry.message);
    }
    assert_int_equal(request->retry.code, code);
    if (named != NULL && strstr(request->retry.message, named) == NULL) {
        fail_msg("'%s' does not name %s", request->retry.message, named);
    }
    request_free(request);
}

#endif
