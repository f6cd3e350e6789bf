/* Reads the parts `normalizer` and `pre_tokenizer` of a tokenizer.json whose model is not WordPiece. Each is a step or,
 * as type Sequence, a list of steps. A field or a step that is not known is refused. */
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/spec.h"
#include "tokenizer/unicode.h"

#define NORMALIZER "tokenizer.json: normalizer"
#define PRE_TOKENIZER "tokenizer.json: pre_tokenizer"

/* One type of step. Appends its row, zeroed, to the pipeline before `read` fills it in from the part. */
struct normal_type {
    const char *type;
    enum normal_step_kind kind;
    enum status (*read)(const cJSON *part, struct normal_step *step, struct err *err);
};

static enum status copy_string(const cJSON *part, const char *path, const char *field, char **out, struct err *err)
{
    const char *text = NULL;
    TRY(fields_string(part, path, field, &text, err));
    *out = strdup(text);
    return *out ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

/* `pattern` is {"String": …} or {"Regex": …}; the only regular expression supported is the one that files use. */
static enum status read_replace(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", "pattern", "content", NULL};
    const cJSON *pattern = json_field(part, "pattern");
    const char *regex = NULL;
    TRY(json_only(part, NORMALIZER, known, NULL, err));
    TRY(copy_string(part, NORMALIZER, "content", &step->content, err));
    TRY(json_string(pattern, NORMALIZER ".pattern", "Regex", &regex, err));
    if (!regex) {
        TRY(copy_string(pattern, NORMALIZER, "String", &step->pattern, err));
        return step->pattern[0] ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, NORMALIZER ": an empty pattern");
    }
    step->kind = STEP_REPLACE_BLANKS;
    if (strcmp(regex, " {2,}") == 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED, NORMALIZER ": the regular expression %.100s is not supported", regex);
}

static enum status read_strip(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", "strip_left", "strip_right", NULL};
    TRY(json_only(part, NORMALIZER, known, NULL, err));
    TRY(fields_bool(part, NORMALIZER, "strip_left", &step->left, err));
    return fields_bool(part, NORMALIZER, "strip_right", &step->right, err);
}

static enum status read_prepend(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", "prepend", NULL};
    TRY(json_only(part, NORMALIZER, known, NULL, err));
    TRY(copy_string(part, NORMALIZER, "prepend", &step->content, err));
    return step->content[0] ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, NORMALIZER ": an empty prepend");
}

static enum status read_precompiled(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", "precompiled_charsmap", NULL};
    const char *base64 = NULL;
    TRY(json_only(part, NORMALIZER, known, NULL, err));
    TRY(fields_string(part, NORMALIZER, "precompiled_charsmap", &base64, err));
    return charsmap_open(base64, &step->map, err) == STATUS_OK ? STATUS_OK : err_prefix(err, NORMALIZER);
}

static enum status read_unicode(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    static const char *const forms[] = {
        [UNICODE_NFD] = "NFD", [UNICODE_NFC] = "NFC", [UNICODE_NFKD] = "NFKD", [UNICODE_NFKC] = "NFKC"};
    enum unicode_form form = UNICODE_NFD;
    TRY(json_only(part, NORMALIZER, known, NULL, err));
    while (strcmp(json_field(part, "type")->valuestring, forms[form]) != 0) { form++; }
    step->unicode = malloc(sizeof *step->unicode);
    if (!step->unicode) { return err_set(err, STATUS_NO_MEMORY, NORMALIZER ": no memory"); }
    unicode_prepare(step->unicode, form);
    return STATUS_OK;
}

static enum status read_nothing(const cJSON *part, struct normal_step *step, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    (void)step;
    return json_only(part, NORMALIZER, known, NULL, err);
}

static enum status read_normal_step(const cJSON *part, const char *type, struct pipeline *pipeline, struct err *err)
{
    static const struct normal_type types[] = {
        {"Replace", STEP_REPLACE, read_replace},
        {"Strip", STEP_STRIP, read_strip},
        {"Lowercase", STEP_LOWERCASE, read_nothing},
        {"Prepend", STEP_PREPEND, read_prepend},
        {"Precompiled", STEP_PRECOMPILED, read_precompiled},
        {"StripAccents", STEP_STRIP_ACCENTS, read_nothing},
        {"Nmt", STEP_NMT, read_nothing},
        {"NFD", STEP_UNICODE, read_unicode},
        {"NFC", STEP_UNICODE, read_unicode},
        {"NFKD", STEP_UNICODE, read_unicode},
        {"NFKC", STEP_UNICODE, read_unicode},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].type) != 0) { continue; }
        struct normal_step *step = &pipeline->normal[pipeline->normal_count++];
        step->kind = types[i].kind;
        return types[i].read(part, step, err);
    }
    return err_set(err, STATUS_UNSUPPORTED, NORMALIZER ": type %.100s is not supported", type);
}

/* Files up to 2023 say `add_prefix_space`, later ones `prepend_scheme` and `split`. */
static enum status read_metaspace(const cJSON *part, struct split_step *step, struct err *err)
{
    static const char *const known[] = {"type",    "replacement", "add_prefix_space", "prepend_scheme", "split",
                                        "str_rep", NULL};
    static const char *const schemes[] = {
        [PREPEND_ALWAYS] = "always", [PREPEND_FIRST] = "first", [PREPEND_NEVER] = "never"};
    const char *mark = NULL, *scheme = "always";
    bool prefix = true;
    step->split = true;
    TRY(json_only(part, PRE_TOKENIZER, known, NULL, err));
    TRY(fields_string(part, PRE_TOKENIZER, "replacement", &mark, err));
    TRY(json_string(part, PRE_TOKENIZER, "prepend_scheme", &scheme, err));
    TRY(json_bool(part, PRE_TOKENIZER, "add_prefix_space", &prefix, err));
    TRY(json_bool(part, PRE_TOKENIZER, "split", &step->split, err));
    size_t size = 0;
    if (mark[0]) { utf8_next(mark, &size); }
    if (size == 0 || mark[size]) {
        return err_set(err, STATUS_BAD_INPUT, PRE_TOKENIZER ": replacement must be one character");
    }
    memcpy(step->mark, mark, size);
    for (int i = 0; i < 3; i++) {
        if (strcmp(scheme, schemes[i]) != 0) { continue; }
        step->prepend = (enum prepend_scheme)i;
        if (prefix || step->prepend == PREPEND_NEVER) { return STATUS_OK; }
        return err_set(err, STATUS_BAD_INPUT, PRE_TOKENIZER ": add_prefix_space is false, prepend_scheme is %s",
                       scheme);
    }
    return err_set(err, STATUS_UNSUPPORTED, PRE_TOKENIZER ": prepend_scheme %.100s is not supported", scheme);
}

static enum status read_whitespace(const cJSON *part, struct split_step *step, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    (void)step;
    return json_only(part, PRE_TOKENIZER, known, NULL, err);
}

/* trim_offsets changes no id. */
static enum status read_byte_level(const cJSON *part, struct split_step *step, struct err *err)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    bool regex = true;
    TRY(json_only(part, PRE_TOKENIZER, known, NULL, err));
    TRY(fields_bool(part, PRE_TOKENIZER, "add_prefix_space", &step->blank, err));
    TRY(json_bool(part, PRE_TOKENIZER, "use_regex", &regex, err));
    return regex ? pattern_open(pattern_gpt2, &step->pattern, err) : STATUS_OK;
}

static enum status read_digits(const cJSON *part, struct split_step *step, struct err *err)
{
    static const char *const known[] = {"type", "individual_digits", NULL};
    bool individual = false;
    TRY(json_only(part, PRE_TOKENIZER, known, NULL, err));
    TRY(fields_bool(part, PRE_TOKENIZER, "individual_digits", &individual, err));
    return pattern_open_digits(individual, &step->pattern, err);
}

static enum status read_split(const cJSON *part, struct split_step *step, struct err *err)
{
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    const cJSON *pattern = json_field(part, "pattern");
    const char *regex = NULL, *behavior = NULL;
    bool invert = false;
    TRY(json_only(part, PRE_TOKENIZER, known, NULL, err));
    TRY(fields_string(part, PRE_TOKENIZER, "behavior", &behavior, err));
    TRY(json_bool(part, PRE_TOKENIZER, "invert", &invert, err));
    TRY(json_string(pattern, PRE_TOKENIZER ".pattern", "Regex", &regex, err));
    if (strcmp(behavior, regex ? "Isolated" : "MergedWithPrevious") != 0 || invert) {
        return err_set(err, STATUS_UNSUPPORTED, PRE_TOKENIZER ": Split by a %s with behavior %.100s%s is not supported",
                       regex ? "regex" : "string", behavior, invert ? " and invert" : "");
    }
    if (!regex) {
        step->kind = SPLIT_BEHIND;
        TRY(copy_string(pattern, PRE_TOKENIZER, "String", &step->string, err));
        return step->string[0] ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, PRE_TOKENIZER ": an empty pattern");
    }
    return pattern_open(regex, &step->pattern, err) == STATUS_OK ? STATUS_OK : err_prefix(err, PRE_TOKENIZER);
}

static enum status read_split_step(const cJSON *part, const char *type, struct pipeline *pipeline, struct err *err)
{
    static const struct {
        const char *type;
        enum split_step_kind kind;
        enum status (*read)(const cJSON *part, struct split_step *step, struct err *err);
    } types[] = {
        {"WhitespaceSplit", SPLIT_WHITESPACE, read_whitespace},
        {"Metaspace", SPLIT_METASPACE, read_metaspace},
        {"Split", SPLIT_PATTERN, read_split},
        {"Digits", SPLIT_NUMBERS, read_digits},
        {"ByteLevel", SPLIT_BYTE_LEVEL, read_byte_level},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].type) != 0) { continue; }
        struct split_step *step = &pipeline->split[pipeline->split_count++];
        step->kind = types[i].kind;
        TRY(types[i].read(part, step, err));
        if (step->kind == SPLIT_METASPACE && step->prepend == PREPEND_FIRST && pipeline->split_count > 1) {
            return err_set(err, STATUS_UNSUPPORTED, PRE_TOKENIZER ": prepend_scheme first behind another step");
        }
        return STATUS_OK;
    }
    return err_set(err, STATUS_UNSUPPORTED, PRE_TOKENIZER ": type %.100s is not supported", type);
}

/* A part of the file that is a step, or a Sequence of parts. */
struct steps {
    const char *path, *list; /* its name in messages; the field of a Sequence */
    const size_t *count;
    enum status (*read)(const cJSON *part, const char *type, struct pipeline *pipeline, struct err *err);
};

static enum status read_steps(const cJSON *part, const struct steps *steps, struct pipeline *pipeline, struct err *err)
{
    const char *type = NULL;
    if (!part) { return STATUS_OK; }
    TRY(fields_string(part, steps->path, "type", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        const char *const known[] = {"type", steps->list, NULL};
        const cJSON *list = json_field(part, steps->list), *child;
        TRY(json_only(part, steps->path, known, NULL, err));
        if (!cJSON_IsArray(list)) {
            return err_set(err, STATUS_BAD_INPUT, "%s.%s must be a list", steps->path, steps->list);
        }
        cJSON_ArrayForEach(child, list)
        {
            TRY(read_steps(child, steps, pipeline, err));
        }
        return STATUS_OK;
    }
    if (*steps->count == PIPELINE_MAX_STEPS) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: more than %d steps", steps->path, PIPELINE_MAX_STEPS);
    }
    return steps->read(part, type, pipeline, err);
}

enum status pipeline_read_normalizer(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const struct steps steps = {NORMALIZER, "normalizers", &spec->pipeline.normal_count, read_normal_step};
    return read_steps(part, &steps, &spec->pipeline, err);
}

enum status pipeline_read_pre_tokenizer(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const struct steps steps = {PRE_TOKENIZER, "pretokenizers", &spec->pipeline.split_count, read_split_step};
    return read_steps(part, &steps, &spec->pipeline, err);
}
