/* The OpenAPI document has all that the tables have. */
#include "calls.h"

#include "base/json.h"
#include "gateway/dialect.h"
#include "gateway/openapi.h"

static const struct openapi_path others[] = {
    {"/v1/jobs/{job}", "get", NULL, "The answer of a job"},
    {"/v1/jobs/{job}", "delete", NULL, "Cancels a job"},
    {"/metrics", "get", "text/plain", "Metrics", "application/json", "{'type':'object'}"},
    {"/health", "get", NULL, "Health", .open = true},
};

static struct buffer document_with(bool keys)
{
    struct buffer to = {0};
    openapi_put((struct openapi_paths){others, 2}, (struct openapi_paths){others + 2, 2}, keys, &to);
    assert_true(buffer_ok(&to) && json_valid(to.data, to.length));
    return to;
}

static struct buffer document(void)
{
    return document_with(false);
}

/* Follows names from one object into the next; fails if one has no such member. */
static struct slice at(struct slice object, const char *const *names)
{
    for (; *names; names++) {
        if (!json_member(object.bytes, object.length, *names, &object.bytes, &object.length)) {
            fail_msg("no %s", *names);
        }
    }
    return object;
}

TEST(each_dialect_has_its_path_and_members)
{
    struct buffer to = document();
    struct slice whole = {to.data, to.length};
    for (size_t d = 0; d < dialect_count; d++) {
        struct slice body = at(whole, (const char *[]){"paths", dialects[d]->path, "post", "requestBody", "content",
                                                       "application/json", "schema", "properties", NULL});
        for (size_t i = 0; i < dialects[d]->member_count; i++) {
            (void)at(body, (const char *[]){dialects[d]->members[i].name, NULL});
        }
    }
    buffer_free(&to);
}

TEST(other_paths_have_their_methods_and_parameters)
{
    struct buffer to = document();
    struct slice paths = at((struct slice){to.data, to.length}, (const char *[]){"paths", NULL});
    assert_slice(at(paths, (const char *[]){"/v1/jobs/{job}", "get", "parameters", NULL}),
                 quoted("[{'name':'job','in':'path','required':true,'schema':{'type':'string'}}]"));
    assert_slice(at(paths, (const char *[]){"/v1/jobs/{job}", "delete", "summary", NULL}), "\"Cancels a job\"");
    assert_slice(at(paths, (const char *[]){"/metrics", "get", "responses", "default", "content", NULL}),
                 quoted("{'text/plain':{},'application/json':{}}"));
    assert_slice(at(paths, (const char *[]){"/metrics", "get", "requestBody", "content", NULL}),
                 quoted("{'application/json':{'schema':{'type':'object'}}}"));
    buffer_free(&to);
}

TEST(a_required_member_may_not_be_null)
{
    struct buffer to = document();
    struct slice body =
        at((struct slice){to.data, to.length},
           (const char *[]){"paths", "/rerank", "post", "requestBody", "content", "application/json", "schema", NULL});
    assert_slice(at(body, (const char *[]){"required", NULL}), quoted("['query','texts']"));
    assert_slice(at(body, (const char *[]){"properties", "query", NULL}), quoted("{'type':'string','minLength':1}"));
    assert_slice(at(body, (const char *[]){"properties", "truncation_direction", NULL}),
                 quoted("{'enum':['Right','right',null]}"));
    buffer_free(&to);
}

TEST(where_keys_are_asked_for_all_but_open_paths_need_one)
{
    struct buffer without = document(), to = document_with(true);
    struct slice whole = {to.data, to.length}, security;
    assert_slice(at(whole, (const char *[]){"security", NULL}), quoted("[{'key':[]}]"));
    assert_slice(at(whole, (const char *[]){"components", "securitySchemes", "key", NULL}),
                 quoted("{'type':'http','scheme':'bearer'}"));
    assert_slice(at(whole, (const char *[]){"paths", "/health", "get", "security", NULL}), "[]");
    struct slice metrics = at(whole, (const char *[]){"paths", "/metrics", "get", NULL});
    assert_false(json_member(metrics.bytes, metrics.length, "security", &security.bytes, &security.length));
    assert_false(json_member(without.data, without.length, "security", &security.bytes, &security.length));
    buffer_free(&without);
    buffer_free(&to);
}
