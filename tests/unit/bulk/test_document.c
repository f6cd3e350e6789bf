/* Making a document of fields. */
#include "harness.h"

#include "bulk/input/document.h"

static struct value string(const char *text)
{
    return (struct value){VALUE_TEXT, text, strlen(text)};
}

TEST(one_field)
{
    struct recipe recipe;
    struct recipe_scratch scratch = {0};
    struct document document = {0};
    struct err err;
    struct recipe_options options = {.field = "text"};
    assert_int_equal(recipe_open(&recipe, &options, &err), STATUS_OK);
    struct value value = string("hello");
    assert_int_equal(recipe_make(&recipe, &value, &scratch, &document, &err), STATUS_OK);
    assert_ptr_equal(document.text, value.bytes); /* not copied */
    value = (struct value){VALUE_STRING, "a\\nb", 4};
    document = (struct document){0};
    assert_int_equal(recipe_make(&recipe, &value, &scratch, &document, &err), STATUS_OK);
    assert_int_equal(document.text_bytes, 3);
    assert_memory_equal(document.text, "a\nb", 3);
    recipe_close(&recipe);
    recipe_scratch_free(&scratch);
}

TEST(a_template)
{
    struct recipe recipe;
    struct recipe_scratch scratch = {0};
    struct document document = {0};
    struct err err;
    struct recipe_options options = {
        .template = "{title}. {{{body}}} {title}", .id_field = "key", .keep = "year,title"};
    assert_int_equal(recipe_open(&recipe, &options, &err), STATUS_OK);
    assert_int_equal(recipe.field_count, 4); /* title, body, key, year: each once */
    struct value values[] = {string("T"), string("B"), {VALUE_SCALAR, "7", 1}, {VALUE_ABSENT}};
    assert_int_equal(recipe_make(&recipe, values, &scratch, &document, &err), STATUS_OK);
    assert_int_equal(document.code, ROW_OK);
    assert_int_equal(document.text_bytes, strlen("T. {B} T"));
    assert_memory_equal(document.text, "T. {B} T", document.text_bytes);
    assert_memory_equal(document.id, "7", document.id_bytes);
    assert_int_equal(document.kept_bytes, strlen(",\"year\":null,\"title\":\"T\""));
    assert_memory_equal(document.kept, ",\"year\":null,\"title\":\"T\"", document.kept_bytes);
    recipe_close(&recipe);
    recipe_scratch_free(&scratch);
}

TEST(what_is_missing_fails_the_row)
{
    struct recipe recipe;
    struct recipe_scratch scratch = {0};
    struct err err;
    struct recipe_options options = {.field = "a.b"};
    assert_int_equal(recipe_open(&recipe, &options, &err), STATUS_OK);
    static const struct {
        struct value value;
        enum row_code code;
        const char *says;
    } bad[] = {
        {{VALUE_ABSENT}, ROW_MISSING_FIELD, "field \"a.b\" is missing"},
        {{VALUE_NULL, "null", 4}, ROW_MISSING_FIELD, "field \"a.b\" is null"},
        {{VALUE_TREE, "{}", 2}, ROW_NOT_TEXT, "field \"a.b\" is an object or an array, not a text"},
        {{VALUE_STRING, "\\ud800", 6}, ROW_BAD_JSON, "field \"a.b\" has a broken escape"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct document document = {0};
        assert_int_equal(recipe_make(&recipe, &bad[i].value, &scratch, &document, &err), STATUS_OK);
        assert_int_equal(document.code, bad[i].code);
        assert_int_equal(document.message_bytes, strlen(bad[i].says));
        assert_memory_equal(document.message, bad[i].says, document.message_bytes);
    }
    recipe_close(&recipe);
    recipe_scratch_free(&scratch);
}

TEST(bad_options_are_refused)
{
    static const struct recipe_options bad[] = {
        {.field = ""},
        {.field = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q"},
        {.template = "no field"},
        {.field = "x", .template = "{both}"},
        {.template = "{open"},
        {.template = "{a} close}"},
        {.template = "{}"},
        {.field = "x", .keep = "a,vector"},
        {.field = "x", .keep = "a,,b"},
        {.field = "x", .id_field = ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct recipe recipe;
        struct err err;
        assert_int_equal(recipe_open(&recipe, &bad[i], &err), STATUS_BAD_INPUT);
        assert_memory_equal(err.message, "--", 2); /* it names the option */
        recipe_close(&recipe);
    }
}
