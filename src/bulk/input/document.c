/* The template is split into parts once; a text that is one plain field is not copied. */
#include "bulk/input/document.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* Finds the number of a field, or adds the field. */
static enum status add_field(struct recipe *recipe, const char *option, const char *name, size_t length, uint32_t *out,
                             struct err *err)
{
    if (length == 0) { return err_set(err, STATUS_BAD_INPUT, "%s names a field without a name", option); }
    size_t depth = 1;
    for (size_t i = 0; i < length; i++) { depth += name[i] == '.'; }
    if (depth > RECIPE_DEPTH_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "%s: \"%.*s\" is more than %d deep", option, (int)length, name,
                       RECIPE_DEPTH_MAX);
    }
    for (*out = 0; *out < recipe->field_count; ++*out) {
        if (strlen(recipe->fields[*out]) == length && memcmp(recipe->fields[*out], name, length) == 0) {
            return STATUS_OK;
        }
    }
    if (recipe->field_count == RECIPE_FIELDS_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "%s: more than %d fields", option, RECIPE_FIELDS_MAX);
    }
    recipe->fields[*out] = strndup(name, length);
    if (!recipe->fields[*out]) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of fields"); }
    recipe->field_count++;
    return STATUS_OK;
}

static enum status add_part(struct recipe *recipe, struct recipe_part part, struct err *err)
{
    if (recipe->part_count == RECIPE_PARTS_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "--template has more than %d parts", RECIPE_PARTS_MAX);
    }
    recipe->parts[recipe->part_count++] = part;
    return STATUS_OK;
}

/* Parses "{name}" and moves `*at` past it. */
static enum status add_placeholder(struct recipe *recipe, const char **at, struct err *err)
{
    const char *end = strchr(*at, '}');
    if (!end) { return err_set(err, STATUS_BAD_INPUT, "--template has a { without a }; {{ is a brace"); }
    struct recipe_part part = {0};
    TRY(add_field(recipe, "--template", *at + 1, (size_t)(end - *at) - 1, &part.field, err));
    *at = end + 1;
    return add_part(recipe, part, err);
}

static enum status parse_template(struct recipe *recipe, const char *template, struct err *err)
{
    if (!utf8_valid(template, strlen(template))) { return err_set(err, STATUS_BAD_INPUT, "--template is not UTF-8"); }
    char *to = recipe->literals = malloc(strlen(template) + 1);
    if (!to) { return err_set(err, STATUS_NO_MEMORY, "no memory for the template"); }
    for (const char *at = template; *at != '\0';) {
        if (*at == '{' && at[1] != '{') {
            TRY(add_placeholder(recipe, &at, err));
            continue;
        }
        struct recipe_part part = {.literal = to};
        for (; *at != '\0' && (*at != '{' || at[1] == '{'); at++) {
            if (*at == '}' && at[1] != '}') {
                return err_set(err, STATUS_BAD_INPUT, "--template has a } without a {; }} is a brace");
            }
            at += *at == '{' || *at == '}';
            *to++ = *at;
        }
        part.length = (size_t)(to - part.literal);
        TRY(add_part(recipe, part, err));
    }
    return recipe->field_count > 0 ? STATUS_OK
                                   : err_set(err, STATUS_BAD_INPUT, "--template names no field, like {title}");
}

static enum status parse_keep(struct recipe *recipe, const char *keep, bool chunks, struct err *err)
{
    static const char *const taken[] = {"id", "chunk", "vector", "error", "start", "end"};
    size_t taken_count = sizeof taken / sizeof taken[0] - (chunks ? 0 : 2);
    while (*keep != '\0') {
        size_t length = strcspn(keep, ",");
        for (size_t i = 0; i < taken_count; i++) {
            if (strlen(taken[i]) == length && memcmp(taken[i], keep, length) == 0) {
                return err_set(err, STATUS_BAD_INPUT, "--keep %s: the output has a field of that name already",
                               taken[i]);
            }
        }
        if (recipe->kept_count == RECIPE_FIELDS_MAX) {
            return err_set(err, STATUS_BAD_INPUT, "--keep: more than %d fields", RECIPE_FIELDS_MAX);
        }
        bool text = length == 4 && memcmp(keep, "text", length) == 0;
        recipe->keeps_text = recipe->keeps_text || (text && !chunks);
        recipe->keeps_chunks = recipe->keeps_chunks || (text && chunks);
        if (!text && !recipe->option) { recipe->option = "--keep"; }
        if (!text || !chunks) {
            TRY(add_field(recipe, "--keep", keep, length, &recipe->kept[recipe->kept_count++], err));
        }
        keep += length + (keep[length] == ',');
    }
    return STATUS_OK;
}

enum status recipe_open(struct recipe *recipe, const struct recipe_options *options, struct err *err)
{
    const char *field = options->field ? options->field : "text";
    *recipe = (struct recipe){0};
    recipe->option = options->field      ? "--field"
                     : options->template ? "--template"
                     : options->id_field ? "--id-field"
                                         : NULL;
    if (options->field && options->template) {
        return err_set(err, STATUS_BAD_INPUT, "--field and --template: name the text in one of the two ways");
    }
    if (options->template) {
        TRY(parse_template(recipe, options->template, err));
    } else {
        struct recipe_part part = {0};
        TRY(add_field(recipe, "--field", field, strlen(field), &part.field, err));
        TRY(add_part(recipe, part, err));
    }
    recipe->has_id = options->id_field;
    if (recipe->has_id) {
        TRY(add_field(recipe, "--id-field", options->id_field, strlen(options->id_field), &recipe->id, err));
    }
    return options->keep ? parse_keep(recipe, options->keep, options->chunks, err) : STATUS_OK;
}

void recipe_close(struct recipe *recipe)
{
    for (uint32_t i = 0; i < recipe->field_count; i++) { free(recipe->fields[i]); }
    free(recipe->literals);
    *recipe = (struct recipe){0};
}

void recipe_scratch_free(struct recipe_scratch *scratch)
{
    buffer_free(&scratch->text);
    buffer_free(&scratch->id);
    buffer_free(&scratch->kept);
    buffer_free(&scratch->message);
}

static void fail_document(struct recipe_scratch *scratch, struct document *out, enum row_code code, const char *field,
                          const char *what)
{
    out->code = code;
    buffer_format(&scratch->message, "field \"%s\" %s", field, what);
}

/* Checks that a value can be a text, a part of one, or an id. */
static bool check_value(const struct recipe *recipe, const struct value *values, uint32_t field,
                        struct recipe_scratch *scratch, struct document *out)
{
    const char *name = recipe->fields[field];
    switch (values[field].kind) {
    case VALUE_ABSENT:
        return fail_document(scratch, out, ROW_MISSING_FIELD, name, "is missing"), false;
    case VALUE_NULL:
        return fail_document(scratch, out, ROW_MISSING_FIELD, name, "is null"), false;
    case VALUE_TREE:
        return fail_document(scratch, out, ROW_NOT_TEXT, name, "is an object or an array, not a text"), false;
    case VALUE_TEXT:
    case VALUE_STRING:
    case VALUE_SCALAR:
        break;
    }
    return true;
}

static bool is_plain(const struct value *value)
{
    return value->kind != VALUE_STRING || !memchr(value->bytes, '\\', value->length);
}

static bool put_text(const struct recipe *recipe, const struct value *values, struct recipe_scratch *scratch,
                     struct document *out)
{
    const struct recipe_part *only = recipe->part_count == 1 ? recipe->parts : NULL;
    for (uint32_t i = 0; i < recipe->part_count; i++) {
        const struct recipe_part *part = &recipe->parts[i];
        const struct value *value = &values[part->field];
        if (part->literal) {
            buffer_append(&scratch->text, part->literal, part->length);
            continue;
        }
        if (!check_value(recipe, values, part->field, scratch, out)) { return false; }
        if (only && is_plain(value)) {
            out->text = value->bytes;
            out->text_bytes = value->length;
            return true;
        }
        if (is_plain(value)) {
            buffer_append(&scratch->text, value->bytes, value->length);
        } else if (!buffer_json_decode(&scratch->text, value->bytes, value->length)) {
            return fail_document(scratch, out, ROW_BAD_JSON, recipe->fields[part->field], "has a broken escape"), false;
        }
    }
    out->text = scratch->text.data ? scratch->text.data : "";
    out->text_bytes = scratch->text.length;
    return true;
}

/* Appends a value as JSON. */
static void put_json(struct buffer *to, const struct value *value)
{
    if (value->kind == VALUE_TEXT) {
        buffer_json_string(to, value->bytes, value->length);
    } else if (value->kind == VALUE_STRING) {
        buffer_append(to, value->bytes - 1, value->length + 2);
    } else if (value->kind == VALUE_ABSENT || value->kind == VALUE_NULL) {
        buffer_string(to, "null");
    } else {
        buffer_append(to, value->bytes, value->length);
    }
}

static void put_kept(const struct recipe *recipe, const struct value *values, struct recipe_scratch *scratch,
                     struct document *out)
{
    for (uint32_t i = 0; i < recipe->kept_count; i++) {
        const char *name = recipe->fields[recipe->kept[i]];
        buffer_string(&scratch->kept, ",");
        buffer_json_string(&scratch->kept, name, strlen(name));
        buffer_string(&scratch->kept, ":");
        put_json(&scratch->kept, &values[recipe->kept[i]]);
    }
    out->kept = scratch->kept.data;
    out->kept_bytes = scratch->kept.length;
}

enum status recipe_make(const struct recipe *recipe, const struct value *values, struct recipe_scratch *scratch,
                        struct document *out, struct err *err)
{
    scratch->text.length = scratch->id.length = scratch->kept.length = scratch->message.length = 0;
    bool good = put_text(recipe, values, scratch, out);
    if (good && recipe->has_id) { good = check_value(recipe, values, recipe->id, scratch, out); }
    if (recipe->has_id && values[recipe->id].kind >= VALUE_TEXT && values[recipe->id].kind <= VALUE_SCALAR) {
        put_json(&scratch->id, &values[recipe->id]);
        out->id = scratch->id.data;
        out->id_bytes = scratch->id.length;
    }
    put_kept(recipe, values, scratch, out);
    out->message = scratch->message.data;
    out->message_bytes = scratch->message.length;
    bool whole = buffer_ok(&scratch->text) && buffer_ok(&scratch->id) && buffer_ok(&scratch->kept) &&
                 buffer_ok(&scratch->message);
    return whole ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a record's fields");
}

static const struct {
    const char *name, *text;
} codes[ROW_CODES] = {
    [ROW_OK] = {"ok", "it has a vector"},
    [ROW_UNREADABLE] = {"unreadable", "the file cannot be read"},
    [ROW_TOO_LARGE] = {"too_large", "longer than --max-text-bytes allows"},
    [ROW_BAD_UTF8] = {"bad_utf8", "not UTF-8"},
    [ROW_EMPTY_TEXT] = {"empty_text", "the text is empty"},
    [ROW_BAD_JSON] = {"bad_json", "not JSON"},
    [ROW_NOT_OBJECT] = {"not_object", "JSON, but not an object"},
    [ROW_BAD_CSV] = {"bad_csv", "not a record of CSV"},
    [ROW_MISSING_FIELD] = {"missing_field", "a field is missing"},
    [ROW_NOT_TEXT] = {"not_text", "the field holds no text"},
    [ROW_NON_FINITE] = {"non_finite", "its vector is not finite; try --precision f32"},
    [ROW_F16_RANGE] = {"f16_range", "its vector has a value that f16 cannot hold; try --dtype f32"},
    [ROW_NO_TOKENS] = {"no_tokens", "the tokenizer makes no token of it"},
    [ROW_REFUSED] = {"refused", "the queue answered with an error"},
    [ROW_CHANGED] = {"changed", "its document has changed, and its vector was not computed again yet"},
};

const char *failure_name(enum row_code code)
{
    return codes[code].name;
}

const char *failure_text(enum row_code code)
{
    return codes[code].text;
}
