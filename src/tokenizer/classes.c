/* Builds a directory's tokenizer as transformers 5 does, which depends on the class that its files name.
 *
 * A class such as BertTokenizer takes only the vocabulary, the merges and, in some, the post-processor from a
 * tokenizer.json; it makes the steps itself, from its defaults and tokenizer_config.json. Others, such as
 * PreTrainedTokenizerFast, follow tokenizer.json. Both then add tokens that the other files name.
 *
 * Source: the behaviour of transformers 5.23 (tokenization_utils_tokenizers, tokenization_auto, the classes). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json_tree.h"
#include "tokenizer/pattern.h"
#include "tokenizer/spec.h"

#define CONFIG_FILE "tokenizer_config.json"
#define MAP_FILE "special_tokens_map.json"
#define ADDED_FILE "added_tokens.json"

/* The named tokens, in the order in which new ones are numbered. */
enum named { BOS, EOS, UNK, SEP, PAD, CLS, MASK, NAMED };
static const char *const named_fields[NAMED + 1] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                                    "pad_token", "cls_token", "mask_token", NULL};

/* A class. One without a model follows tokenizer.json, and its other fields are zero. */
struct tokenizer_class {
    const char *names[10];               /* names of the class, without "Fast"; ends with NULL */
    const char *families[5];             /* the model types whose default it is; ends with NULL */
    const struct tokenizer_model *model; /* the model of its tokenizers */
    const char *file;                    /* the vocabulary that it also opens without a tokenizer.json, or NULL */
    const char *standard[NAMED];         /* the named tokens, if the files do not give them; NULL: none */
    const char *extra[4];                /* more tokens, if the files list none */
    const char *normalizer;              /* as in a tokenizer.json; NULL: none, or BERT's by the config */
    const char *pre_tokenizer[3];        /* as in a tokenizer.json: without and with a blank before each text; if the
                                          * config has legacy, the third in place of the second */
    const char *decoder[2];              /* in the same way; the second may be NULL: it is the first */
    bool keeps_charsmap;                 /* the normaliser is the file's first Precompiled, if it has one */
    bool prefix;                         /* a blank before each text unless add_prefix_space says otherwise */
    bool byte_fallback;
    bool no_unknown;  /* the model has no unknown token, whatever the file says */
    bool mask_strips; /* a new mask takes the white space before it */
    bool plain;       /* named tokens have no flags, even if the files give some */
    enum tokenizer_around around;
    enum named first, last; /* the tokens before and after a text */
    enum trim trim;         /* with BPE as the config says */
};

#define BYTE_LEVEL(prefix, regex)                                                                                      \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"trim_offsets\":true,\"use_regex\":" regex "}"
#define METASPACE(scheme)                                                                                              \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","                \
    "\"replacement\":\"\u2581\",\"prepend_scheme\":\"" scheme "\",\"split\":true}]}"
#define METASPACE_DECODER(scheme)                                                                                      \
    "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"" scheme "\"}"
#define WHOLE_METASPACE(scheme)                                                                                        \
    "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"" scheme "\",\"split\":false}"
#define LETTERS_DECODER(more)                                                                                          \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":"      \
    "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" more "]}"
#define BERT_STEPS                                                                                                     \
    {                                                                                                                  \
        "{\"type\":\"BertPreTokenizer\"}", "{\"type\":\"BertPreTokenizer\"}"                                           \
    }
#define GPT2_STEPS                                                                                                     \
    {                                                                                                                  \
        BYTE_LEVEL("false", "true"), BYTE_LEVEL("true", "true")                                                        \
    }
#define METASPACE_STEPS                                                                                                \
    {                                                                                                                  \
        METASPACE("never"), METASPACE("always")                                                                        \
    }
#define ROBERTA_TOKENS                                                                                                 \
    {                                                                                                                  \
        "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"                                                       \
    }

static const struct tokenizer_class classes[] = {
    {.names = {"PreTrainedTokenizer", "TokenizersBackend", "PythonBackend"}},
    {.names = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
               "SqueezeBertTokenizer", "LxmertTokenizer"},
     .families = {"bert", "distilbert", "electra", "nomic_bert"},
     .model = &tokenizer_wordpiece,
     .file = "vocab.txt",
     .standard = {NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
     .pre_tokenizer = BERT_STEPS,
     .decoder = {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"},
     .around = AROUND_BERT,
     .first = CLS,
     .last = SEP},
    {.names = {"MPNetTokenizer"},
     .families = {"mpnet"},
     .model = &tokenizer_wordpiece,
     .file = "vocab.txt",
     .standard = {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"},
     .pre_tokenizer = BERT_STEPS,
     .decoder = {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"},
     .mask_strips = true,
     .around = AROUND_ROBERTA,
     .first = CLS,
     .last = SEP,
     .trim = TRIM_ALL},
    {.names = {"RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer"},
     .families = {"roberta"},
     .model = &tokenizer_bpe,
     .file = "merges.txt",
     .standard = ROBERTA_TOKENS,
     .pre_tokenizer = GPT2_STEPS,
     .decoder = {BYTE_LEVEL("false", "true")},
     .around = AROUND_ROBERTA,
     .first = CLS,
     .last = SEP,
     .trim = TRIM_ALL},
    {.names = {"XLMRobertaTokenizer"},
     .families = {"xlm-roberta", "gte"},
     .model = &tokenizer_unigram,
     .standard = ROBERTA_TOKENS,
     .pre_tokenizer = METASPACE_STEPS,
     .decoder = {METASPACE_DECODER("never"), METASPACE_DECODER("always")},
     .keeps_charsmap = true,
     .prefix = true,
     .around = AROUND_ROBERTA,
     .first = BOS,
     .last = EOS},
    {.names = {"CamembertTokenizer"},
     .families = {"camembert"},
     .model = &tokenizer_unigram,
     .standard = ROBERTA_TOKENS,
     .extra = {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"},
     .pre_tokenizer = METASPACE_STEPS,
     .decoder = {METASPACE_DECODER("never"), METASPACE_DECODER("always")},
     .keeps_charsmap = true,
     .prefix = true,
     .mask_strips = true,
     .around = AROUND_ROBERTA,
     .first = BOS,
     .last = EOS},
    {.names = {"GPT2Tokenizer"},
     .model = &tokenizer_bpe,
     .standard = {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
     .pre_tokenizer = GPT2_STEPS,
     .decoder = {BYTE_LEVEL("false", "true")}},
    {.names = {"LlamaTokenizer"},
     .model = &tokenizer_bpe,
     .standard = {"<s>", "</s>", "<unk>"},
     .pre_tokenizer = {WHOLE_METASPACE("never"), WHOLE_METASPACE("first"), WHOLE_METASPACE("always")},
     .decoder = {LETTERS_DECODER(""),
                 LETTERS_DECODER(",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}")},
     .prefix = true,
     .byte_fallback = true,
     .no_unknown = true},
    {.names = {"Qwen2Tokenizer"},
     .families = {"qwen2", "qwen3"},
     .model = &tokenizer_bpe,
     .standard = {NULL, "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>"},
     .normalizer = "{\"type\":\"NFC\"}",
     .pre_tokenizer = {BYTE_LEVEL("false", "false"), BYTE_LEVEL("true", "false")}, /* after a Split, see make_steps */
     .decoder = {BYTE_LEVEL("false", "true")},
     .plain = true},
    {.names = {"GemmaTokenizer"},
     .families = {"gemma3_text"},
     .model = &tokenizer_bpe,
     .standard = {"<bos>", "<eos>", "<unk>", NULL, "<pad>", NULL, "<mask>"},
     .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}",
     .pre_tokenizer = {"{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
                       "\"invert\":false}"},
     .decoder = {LETTERS_DECODER("")},
     .byte_fallback = true},
};
enum { CLASSES = sizeof classes / sizeof classes[0] };

const struct tokenizer_class *const tokenizer_class_of_file = &classes[0];

/* Choosing the class. */

static const struct tokenizer_class *find_class(const char *name)
{
    char plain[64];
    size_t length = strlen(name), cut = length >= 4 && strcmp(name + length - 4, "Fast") == 0 ? 4 : 0;
    snprintf(plain, sizeof plain, "%.*s", (int)(length < sizeof plain ? length - cut : 0), name);
    for (size_t i = 0; i < CLASSES; i++) {
        if (json_is_in(classes[i].names, plain)) { return &classes[i]; }
    }
    return NULL;
}

static const struct tokenizer_class *class_of_family(const char *family)
{
    for (size_t i = 0; i < CLASSES; i++) {
        if (json_is_in(classes[i].families, family)) { return &classes[i]; }
    }
    return NULL;
}

/* MPNet's vocabulary has BERT's special tokens, too, so it does not distinguish the two. */
enum status tokenizer_class_find(const struct tokenizer_files *files, const char *vocabulary,
                                 const struct tokenizer_class **out, struct err *err)
{
    const char *name = NULL, *family = "", *where = CONFIG_FILE;
    *out = tokenizer_class_of_file;
    TRY(json_string(files->config, CONFIG_FILE, "tokenizer_class", &name, err));
    TRY(json_string(files->model, "config.json", "model_type", &family, err));
    if (strcmp(family, "mistral") == 0 && !vocabulary) { return STATUS_OK; } /* whichever class it names */
    if (!name) {
        where = "config.json";
        TRY(json_string(files->model, "config.json", "tokenizer_class", &name, err));
    }
    if (name && strcmp(family, "modernbert") == 0 && !vocabulary) { return STATUS_OK; } /* many name a wrong class */
    bool wrong = strcmp(family, "qwen2") == 0; /* many name a wrong one here, too, in place of Qwen2's */
    const struct tokenizer_class *found = name && !wrong ? find_class(name) : class_of_family(family);
    for (size_t i = 0; vocabulary && !name && !found && i < CLASSES; i++) {
        if (classes[i].file && strcmp(classes[i].file, vocabulary) == 0) { found = &classes[i]; } /* BERT, RoBERTa */
    }
    if (!name && !found) { return STATUS_OK; }
    if (found && (!vocabulary || (found->file && strcmp(found->file, vocabulary) == 0))) {
        *out = found;
        return STATUS_OK;
    }
    if (!vocabulary) {
        return err_set(
            err, STATUS_UNSUPPORTED,
            "%s: tokenizer_class %.100s is not supported, and may make another tokenizer of a tokenizer.json "
            "(TokenizersBackend does not)",
            where, name);
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s: %s %.100s is not supported with %s, only with a tokenizer.json", where,
                   name ? "tokenizer_class" : "model_type", name ? name : family, vocabulary);
}

/* Rewriting tokenizer.json. */

/* Returns a field, even one that is null; NULL if the object has none of that name. */
static const cJSON *field_of(const cJSON *object, const char *field)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, field) : NULL;
}

/* The older files count only if tokenizer_config.json does not list the added tokens. */
static bool older_files_count(const struct tokenizer_files *files)
{
    return field_of(files->config, "added_tokens_decoder") == NULL;
}

/* Returns the files' value for a named token; NULL if they have none. */
static const cJSON *said_of(const struct tokenizer_files *files, const char *field)
{
    const cJSON *older = older_files_count(files) ? field_of(files->map, field) : NULL;
    return older ? older : field_of(files->config, field);
}

/* Finds the text of a named token; NULL if the class has none. */
static enum status named_text(const struct tokenizer_class *class, const struct tokenizer_files *files,
                              enum named which, const char **text, struct err *err)
{
    const cJSON *value = said_of(files, named_fields[which]);
    *text = value ? NULL : class->standard[which];
    if (!value || cJSON_IsNull(value)) { return STATUS_OK; }
    *text = cJSON_GetStringValue(cJSON_IsObject(value) ? json_field(value, "content") : value);
    return *text ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, CONFIG_FILE ": %s must be a token", named_fields[which]);
}

static enum status set_field(cJSON *object, const char *field, cJSON *value, struct err *err)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, field);
    if (value && cJSON_AddItemToObject(object, field, value)) { return STATUS_OK; }
    cJSON_Delete(value);
    return err_set(err, STATUS_NO_MEMORY, "no memory for %s", field);
}

static enum status set_text(cJSON *object, const char *field, const char *json, struct err *err)
{
    return set_field(object, field, json ? cJSON_Parse(json) : cJSON_CreateNull(), err);
}

/* BERT's normaliser, as the config says. */
static enum status make_bert_normalizer(const struct tokenizer_files *files, cJSON *root, struct err *err)
{
    bool lower = true, chinese = true, strip = true;
    TRY(json_bool(files->config, CONFIG_FILE, "do_lower_case", &lower, err));
    TRY(json_bool(files->config, CONFIG_FILE, "tokenize_chinese_chars", &chinese, err));
    strip = lower;
    TRY(json_bool(files->config, CONFIG_FILE, "strip_accents", &strip, err));
    char json[192];
    snprintf(json, sizeof json,
             "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":%s,\"strip_accents\":%s,"
             "\"lowercase\":%s}",
             chinese ? "true" : "false", strip ? "true" : "false", lower ? "true" : "false");
    return set_text(root, "normalizer", json, err);
}

/* Keeps only the first Precompiled of a normaliser or of its steps. */
static enum status keep_charsmap(cJSON *root, struct err *err)
{
    cJSON *normalizer = cJSON_DetachItemFromObjectCaseSensitive(root, "normalizer"), *kept = NULL;
    cJSON *steps = cJSON_GetObjectItemCaseSensitive(normalizer, "normalizers");
    cJSON *step = cJSON_IsArray(steps) ? steps->child : normalizer;
    while (step && !kept) {
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(step, "type"));
        cJSON *next = step->next;
        if (type && strcmp(type, "Precompiled") == 0) {
            kept = step == normalizer ? step : cJSON_DetachItemViaPointer(steps, step);
        }
        step = next;
    }
    if (kept != normalizer) { cJSON_Delete(normalizer); }
    return set_field(root, "normalizer", kept ? kept : cJSON_CreateNull(), err);
}

/* Qwen2's second step is a ByteLevel, its first a Split by its regex, which JSON writes with twice as many backslashes
 * as C. */
static enum status make_steps(const struct tokenizer_class *class, const struct tokenizer_files *files, bool prefix,
                              cJSON *root, struct err *err)
{
    bool legacy = false;
    if (class->pre_tokenizer[2]) { TRY(json_bool(files->config, CONFIG_FILE, "legacy", &legacy, err)); }
    const char *json = class->pre_tokenizer[legacy && prefix ? 2 : prefix && class->pre_tokenizer[1]];
    if (!class->plain) { return set_text(root, "pre_tokenizer", json, err); }
    cJSON *split = cJSON_Parse("{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\",\"invert\":false}");
    cJSON *sequence = cJSON_Parse("{\"type\":\"Sequence\",\"pretokenizers\":[]}"), *bytes = cJSON_Parse(json);
    cJSON *list = cJSON_GetObjectItemCaseSensitive(sequence, "pretokenizers");
    bool made = cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(split, "pattern"), "Regex", pattern_qwen2) &&
                bytes && cJSON_AddItemToArray(list, split);
    if (made) { made = cJSON_AddItemToArray(list, bytes); }
    if (made) { return set_field(root, "pre_tokenizer", sequence, err); }
    cJSON_Delete(sequence);
    return err_set(err, STATUS_NO_MEMORY, "no memory for a pre_tokenizer");
}

/* The index of the unknown token in a Unigram's list; 0 if it is not in the list. */
static double find_unknown(const cJSON *vocabulary, const char *unknown)
{
    double place = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, vocabulary)
    {
        const char *text = cJSON_GetStringValue(cJSON_GetArrayItem(child, 0));
        if (text && unknown && strcmp(text, unknown) == 0) { return place; }
        place++;
    }
    return 0;
}

static enum status make_model(const struct tokenizer_class *class, const struct tokenizer_files *files, cJSON *model,
                              struct err *err)
{
    const char *unknown;
    TRY(named_text(class, files, UNK, &unknown, err));
    if (class->model == &tokenizer_wordpiece) {
        TRY(set_field(model, "unk_token", cJSON_CreateString(unknown ? unknown : ""), err));
        TRY(set_field(model, "max_input_chars_per_word", cJSON_CreateNumber(100), err));
        return set_field(model, "continuing_subword_prefix", cJSON_CreateString("##"), err);
    }
    TRY(set_field(model, "byte_fallback", cJSON_CreateBool(class->byte_fallback), err));
    if (class->model == &tokenizer_unigram) {
        double place = class->extra[0] ? find_unknown(json_field(model, "vocab"), unknown) : 3;
        return set_field(model, "unk_id", cJSON_CreateNumber(place), err);
    }
    if (class->no_unknown) { cJSON_DeleteItemFromObjectCaseSensitive(model, "unk_token"); }
    static const char *const dropped[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 3; i++) { cJSON_DeleteItemFromObjectCaseSensitive(model, dropped[i]); }
    return set_field(model, "ignore_merges", cJSON_CreateBool(false), err);
}

const struct tokenizer_class *tokenizer_class_of_json(const struct tokenizer_class *class, const char *text,
                                                      size_t length)
{
    static const char bytes[] = "\"ByteLevel\"";
    bool other = json_is_in(class->names, "LlamaTokenizer") && memmem(text, length, bytes, sizeof bytes - 1);
    return other ? tokenizer_class_of_file : class;
}

enum status tokenizer_class_rewrite(const struct tokenizer_class **class, const struct tokenizer_files *files,
                                    const struct tokenizer_model *model, cJSON *root, struct err *err)
{
    const struct tokenizer_class *own = *class;
    if (!own->model) { return STATUS_OK; }
    if (own->model != model) {
        *class = tokenizer_class_of_file;
        bool list = model == &tokenizer_unigram, wants_list = own->model == &tokenizer_unigram;
        if (wants_list || (list && own->model == &tokenizer_wordpiece)) { return STATUS_OK; /* transformers fails */ }
        return err_set(err, STATUS_UNSUPPORTED,
                       "tokenizer.json: model: type %s is not what tokenizer_class %s reads (%s)", model->type,
                       own->names[0], own->model->type);
    }
    bool prefix = own->prefix;
    TRY(json_bool(files->config, CONFIG_FILE, "add_prefix_space", &prefix, err));
    if (own->model == &tokenizer_wordpiece) {
        TRY(make_bert_normalizer(files, root, err));
    } else if (own->keeps_charsmap) {
        TRY(keep_charsmap(root, err));
    } else {
        TRY(set_text(root, "normalizer", own->normalizer, err));
    }
    TRY(make_steps(own, files, prefix, root, err));
    TRY(set_text(root, "decoder", own->decoder[prefix && own->decoder[1]], err));
    if (own->around != AROUND_FILE) { TRY(set_text(root, "post_processor", NULL, err)); }
    cJSON *part = cJSON_GetObjectItemCaseSensitive(root, "model");
    return cJSON_IsObject(part) ? make_model(own, files, part, err) : STATUS_OK;
}

/* Added tokens. */

/* Reads a token: a string, which is matched literally, or an object with "content" and flags. `special` is the default
 * for an object without that field. Owns: the caller frees its content. */
static enum status read_token(const cJSON *value, const char *where, bool special, struct added_token *token,
                              struct err *err)
{
    const char *content = cJSON_GetStringValue(value);
    *token = (struct added_token){.id = -1, .special = true};
    if (cJSON_IsObject(value)) {
        TRY(json_string(value, where, "content", &content, err));
        TRY(json_bool(value, where, "single_word", &token->single_word, err));
        TRY(json_bool(value, where, "lstrip", &token->lstrip, err));
        TRY(json_bool(value, where, "rstrip", &token->rstrip, err));
        TRY(json_bool(value, where, "special", &special, err));
        token->normalized = !special;
        token->special = special;
        TRY(json_bool(value, where, "normalized", &token->normalized, err));
    }
    if (!content || content[0] == '\0') { return err_set(err, STATUS_BAD_INPUT, "%s must be a token", where); }
    token->length = strlen(content);
    token->content = strdup(content);
    return token->content ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "%s: no memory", where);
}

static struct added_token *find_token(const struct tokenizer_spec *spec, const char *content)
{
    for (size_t i = 0; i < spec->added_count; i++) {
        if (strcmp(spec->added[i].content, content) == 0) { return &spec->added[i]; }
    }
    return NULL;
}

/* Appends a token, taking over its content. If it is there already, gives the present one its flags or changes nothing.
 */
static enum status put_token(struct tokenizer_spec *spec, struct added_token token, bool replace, struct err *err)
{
    struct added_token *there = find_token(spec, token.content);
    if (there) {
        if (replace) {
            char *content = there->content;
            int32_t id = there->id;
            token.special |= there->special;
            *there = token;
            there->content = content;
            there->id = id;
        }
        free(token.content);
        return STATUS_OK;
    }
    struct added_token *more = realloc(spec->added, (spec->added_count + 1) * sizeof *more);
    if (!more) {
        free(token.content);
        return err_set(err, STATUS_NO_MEMORY, "no memory for added tokens");
    }
    spec->added = more;
    spec->added[spec->added_count++] = token;
    return STATUS_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static bool has_id(const struct tokenizer_spec *spec, int32_t id)
{
    for (size_t i = 0; i < spec->added_count; i++) {
        if (spec->added[i].id == id) { return true; }
    }
    return false;
}

/* Returns true if the files name a text as a special token. */
static bool is_named(const struct tokenizer_files *files, const char *text)
{
    for (int i = 0; i < NAMED + 1; i++) {
        const cJSON *value = said_of(files, named_fields[i] ? named_fields[i] : "extra_special_tokens"), *child;
        const char *own = cJSON_GetStringValue(cJSON_IsObject(value) ? json_field(value, "content") : value);
        if (own && strcmp(own, text) == 0) { return true; }
        if (!cJSON_IsArray(value)) { continue; }
        cJSON_ArrayForEach(child, value)
        {
            if (cJSON_IsString(child) && strcmp(child->valuestring, text) == 0) { return true; }
        }
    }
    return false;
}

/* True if a field of a file names a token. */
static bool is_name(const cJSON *field)
{
    size_t length = strlen(field->string);
    bool token = length > 6 && strcmp(field->string + length - 6, "_token") == 0;
    return token && (cJSON_IsString(field) || json_field(field, "content") != NULL);
}

/* Makes a token that has a name a special one; it is looked for in normalised text only if the file says so. */
static void set_named(struct added_token *token, const cJSON *value)
{
    token->special = true;
    token->normalized = cJSON_IsTrue(json_field(value, "normalized"));
}

/* Returns true if the config, or the class where the config is silent, has a name for a token. */
static bool has_name(const struct tokenizer_class *class, const cJSON *config, const char *text)
{
    const cJSON *child;
    cJSON_ArrayForEach(child, config)
    {
        const char *own = cJSON_GetStringValue(cJSON_IsObject(child) ? json_field(child, "content") : child);
        if (is_name(child) && own && strcmp(own, text) == 0) { return true; }
    }
    for (int i = 0; i < NAMED; i++) {
        const char *own = field_of(config, named_fields[i]) ? NULL : class->standard[i];
        if (own && strcmp(own, text) == 0) { return true; }
    }
    return false;
}

/* Reads added_tokens_decoder, whose keys are ids, or added_tokens.json, whose values are. */
static enum status read_listed(const struct tokenizer_class *class, const struct tokenizer_files *files,
                               struct tokenizer_spec *listed, struct err *err)
{
    bool older = older_files_count(files);
    const char *where = older ? ADDED_FILE : CONFIG_FILE ": added_tokens_decoder";
    const cJSON *list = older ? files->added : field_of(files->config, "added_tokens_decoder"), *child;
    if (list && !cJSON_IsObject(list)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an object", where); }
    cJSON_ArrayForEach(child, list)
    {
        struct added_token token;
        int32_t id = 0;
        if (older) {
            cJSON name = {.type = cJSON_String, .valuestring = child->string};
            TRY(fields_id(child, ADDED_FILE ": an id", &id, err));
            TRY(read_token(&name, where, true, &token, err));
            token.special = is_named(files, token.content);
            token.normalized = !token.special;
        } else {
            char *end;
            long number = strtol(child->string, &end, 10);
            if (end == child->string || *end != '\0' || number < 0 || number >= INT32_MAX) {
                return err_set(err, STATUS_BAD_INPUT, "%s: %.100s must be an id", where, child->string);
            }
            id = (int32_t)number;
            TRY(read_token(child, where, false, &token, err));
            if (has_name(class, files->config, token.content)) { set_named(&token, child); }
        }
        token.id = id;
        TRY(put_token(listed, token, true, err));
    }
    return STATUS_OK;
}

/* Adds those tokens to the file's. A class that makes its tokenizer itself uses the file's tokens only if
 * tokenizer_config.json lists none; it adds all in the order of their ids, and numbers them anew. */
static enum status put_listed(const struct tokenizer_class *class, const struct tokenizer_files *files,
                              struct tokenizer_spec *spec, struct tokenizer_spec *listed, struct err *err)
{
    TRY(read_listed(class, files, listed, err));
    if (class->model && !older_files_count(files)) {
        for (size_t i = 0; i < spec->added_count; i++) { free(spec->added[i].content); }
        spec->added_count = 0;
    }
    if (listed->added_count > 1) { qsort(listed->added, listed->added_count, sizeof *listed->added, compare_ids); }
    for (size_t i = 0; i < listed->added_count; i++) {
        struct added_token *token = &listed->added[i];
        bool known = older_files_count(files) && has_id(spec, token->id);
        if (!class->model) { token->id = -1; }
        struct added_token taken = *token;
        token->content = NULL;
        if (known) {
            free(taken.content);
            continue;
        }
        TRY(put_token(spec, taken, true, err));
    }
    if (!class->model) { return STATUS_OK; }
    if (spec->added_count > 1) { qsort(spec->added, spec->added_count, sizeof *spec->added, compare_ids); }
    for (size_t i = 0; i < spec->added_count; i++) { spec->added[i].id = -1; }
    return STATUS_OK;
}

/* A token without flags. */
static struct added_token plain_token(const struct added_token *token)
{
    return (struct added_token){.content = token->content, .length = token->length, .id = -1, .special = true};
}

/* Adds a special token that the files name, unless it is there already. `named`: it has a name of its own. */
static enum status put_special(const struct tokenizer_class *class, const cJSON *value, const char *where, bool older,
                               bool named, struct tokenizer_spec *spec, struct err *err)
{
    struct added_token token;
    TRY(read_token(value, where, older, &token, err));
    if (named) { set_named(&token, value); }
    if (class->plain) { token = plain_token(&token); }
    return put_token(spec, token, class->plain, err);
}

static enum status put_named(const struct tokenizer_class *class, const struct tokenizer_files *files,
                             struct tokenizer_spec *spec, struct err *err)
{
    for (enum named i = 0; i < NAMED; i++) {
        const cJSON *value = said_of(files, named_fields[i]);
        const cJSON standard = {.type = cJSON_String, .valuestring = (char *)(uintptr_t) class->standard[i]};
        bool older = value && older_files_count(files) && value == field_of(files->map, named_fields[i]);
        if (!value && class->standard[i]) { value = &standard; }
        if (!value || cJSON_IsNull(value)) { continue; }
        struct added_token token;
        char where[64];
        snprintf(where, sizeof where, "%s: %s", older ? MAP_FILE : CONFIG_FILE, named_fields[i]);
        TRY(read_token(value, where, older, &token, err));
        set_named(&token, value);
        if (cJSON_IsString(value)) { token.lstrip = class->mask_strips && i == MASK; }
        if (class->plain) { token = plain_token(&token); }
        TRY(put_token(spec, token, class->plain, err));
    }
    return STATUS_OK;
}

/* Adds tokens with other names: fields that end with _token and are tokens. */
static enum status put_other_named(const struct tokenizer_class *class, const cJSON *file, const char *where,
                                   bool older, struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *child;
    cJSON_ArrayForEach(child, file)
    {
        if (!is_name(child) || json_is_in(named_fields, child->string)) { continue; }
        TRY(put_special(class, child, where, older, true, spec, err));
    }
    return STATUS_OK;
}

/* Adds a list of tokens, or an object of names and tokens. */
static enum status put_all(const struct tokenizer_class *class, const cJSON *list, const char *where, bool older,
                           struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *child;
    if (list && !cJSON_IsArray(list) && !cJSON_IsObject(list) && !cJSON_IsNull(list)) {
        return err_set(err, STATUS_BAD_INPUT, "%s must be a list of tokens", where);
    }
    cJSON_ArrayForEach(child, list)
    {
        TRY(put_special(class, child, where, older, cJSON_IsObject(list), spec, err));
    }
    return STATUS_OK;
}

/* More tokens are in extra_special_tokens or, by its former name, additional_special_tokens. Those of
 * special_tokens_map.json are added to the ones under the new name; under the former name only if the config has
 * neither. */
static enum status put_extra(const struct tokenizer_class *class, const struct tokenizer_files *files,
                             struct tokenizer_spec *spec, struct err *err)
{
    static const char *const extra_field = "extra_special_tokens", *const former_field = "additional_special_tokens";
    const char *extra_where = CONFIG_FILE ": extra_special_tokens";
    const cJSON *extra = field_of(files->config, extra_field), *former = field_of(files->config, former_field);
    const cJSON *map = older_files_count(files) ? files->map : NULL;
    const cJSON *map_extra = field_of(map, extra_field), *map_former = field_of(map, former_field);
    const cJSON *specific = field_of(files->config, "model_specific_special_tokens");
    if (former && json_is_empty(extra)) {
        extra = former;
        extra_where = CONFIG_FILE ": additional_special_tokens";
    }
    TRY(put_other_named(class, files->config, CONFIG_FILE, false, spec, err));
    if (specific) { TRY(put_all(class, specific, CONFIG_FILE ": model_specific_special_tokens", false, spec, err)); }
    bool names = cJSON_IsObject(extra), map_names = cJSON_IsObject(map_extra);
    if (names) { TRY(put_all(class, extra, extra_where, false, spec, err)); }
    if (map_names) { TRY(put_all(class, map_extra, MAP_FILE ": extra_special_tokens", true, spec, err)); }
    TRY(put_other_named(class, map, MAP_FILE, true, spec, err));
    if (!names) { TRY(put_all(class, extra, extra_where, false, spec, err)); }
    if (!map_names) { TRY(put_all(class, map_extra, MAP_FILE ": extra_special_tokens", true, spec, err)); }
    if ((extra && !names) || (map_extra && !map_names)) { return STATUS_OK; }
    if (map_former) { return put_all(class, map_former, MAP_FILE ": additional_special_tokens", true, spec, err); }
    for (size_t i = 0; class->extra[i]; i++) {
        const cJSON token = {.type = cJSON_String, .valuestring = (char *)(uintptr_t) class->extra[i]};
        TRY(put_special(class, &token, "", true, false, spec, err));
    }
    return STATUS_OK;
}

/* Finds a named token, for the template, in the list of added tokens. */
static enum status find_end(const struct tokenizer_class *class, const struct tokenizer_files *files, enum named which,
                            const struct tokenizer_spec *spec, size_t *place, struct err *err)
{
    const char *text;
    TRY(named_text(class, files, which, &text, err));
    const struct added_token *token = text ? find_token(spec, text) : NULL;
    if (!token) { return err_set(err, STATUS_UNSUPPORTED, CONFIG_FILE ": there is no %s", named_fields[which]); }
    *place = (size_t)(token - spec->added);
    return STATUS_OK;
}

static enum status finish_spec(const struct tokenizer_class *class, const struct tokenizer_files *files,
                               struct tokenizer_spec *spec, struct tokenizer_spec *listed, struct err *err)
{
    const struct {
        const cJSON *json;
        const char *name;
    } objects[] = {{files->config, CONFIG_FILE}, {files->map, MAP_FILE}, {files->added, ADDED_FILE}};
    for (size_t i = 0; i < 3; i++) {
        if (objects[i].json && !cJSON_IsObject(objects[i].json)) {
            return err_set(err, STATUS_BAD_INPUT, "%s must be an object", objects[i].name);
        }
    }
    TRY(put_listed(class, files, spec, listed, err));
    TRY(put_named(class, files, spec, err));
    TRY(put_extra(class, files, spec, err));
    spec->around = class->around;
    if (class->around == AROUND_FILE) { return STATUS_OK; }
    spec->specials.trim = class->trim;
    if (class->model == &tokenizer_bpe) {
        bool trims = true, prefix = false;
        TRY(json_bool(files->config, CONFIG_FILE, "trim_offsets", &trims, err));
        TRY(json_bool(files->config, CONFIG_FILE, "add_prefix_space", &prefix, err));
        spec->specials.trim = !trims ? TRIM_NOTHING : prefix ? TRIM_BUT_FIRST : TRIM_ALL;
    }
    TRY(find_end(class, files, class->first, spec, &spec->first, err));
    return find_end(class, files, class->last, spec, &spec->last, err);
}

enum status tokenizer_class_finish(const struct tokenizer_class *class, const struct tokenizer_files *files,
                                   struct tokenizer_spec *spec, struct err *err)
{
    struct tokenizer_spec listed = {0};
    enum status status = finish_spec(class, files, spec, &listed, err);
    tokenizer_spec_free(&listed);
    return status;
}
