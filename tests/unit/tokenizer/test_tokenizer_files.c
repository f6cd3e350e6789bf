/* The files that are opened, their valid content, and refusals, which all name the file and the field. */
#include "harness.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

#define NORMALIZER                                                                                                     \
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"                   \
    "\"strip_accents\":null,\"lowercase\":true}"
#define PRE_TOKENIZER "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define MODEL_OF(vocabulary)                                                                                           \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","                  \
    "\"max_input_chars_per_word\":100,\"vocab\":" vocabulary "}"
#define MODEL MODEL_OF("{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"a\":3}")
#define ADDED_TOKEN(id, content, normalized)                                                                           \
    "{\"id\":" id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"              \
    "\"normalized\":" normalized ",\"special\":true}"

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/sluice-tokenizer-XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json",
                                        "vocab.txt",
                                        "tokenizer_config.json",
                                        "added_tokens.json",
                                        "special_tokens_map.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static struct tokenizer *must_open(void)
{
    struct tokenizer *tokenizer;
    struct err err = {0};
    if (tokenizer_open(directory, &tokenizer, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return tokenizer;
}

static void refused(enum status expected, const char *file, const char *field)
{
    struct tokenizer *tokenizer;
    struct err err = {0};
    enum status status = tokenizer_open(directory, &tokenizer, &err);
    if (status != expected || strstr(err.message, file) == NULL || strstr(err.message, field) == NULL) {
        fail_msg("%s: \"%s\"; expected %s with \"%s\" and \"%s\"", status_name(status), err.message,
                 status_name(expected), file, field);
    }
    assert_null(tokenizer);
}

static void encodes_to(const struct tokenizer *tokenizer, const char *text, const int32_t *expected, uint32_t wanted)
{
    int32_t ids[32];
    uint32_t count;
    bool truncated;
    struct err err = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), 32, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(count, wanted);
    assert_memory_equal(ids, expected, wanted * sizeof *ids);
}

#define ENCODES_TO(tokenizer, text, ...)                                                                               \
    encodes_to(tokenizer, text, (const int32_t[]){__VA_ARGS__}, sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))

TEST_WITH(every_bad_field_is_named, make_directory, remove_directory)
{
    static const struct {
        const char *json;
        enum status status;
        const char *field;
    } bad[] = {
        {"", STATUS_BAD_INPUT, "JSON"},
        {"[]", STATUS_BAD_INPUT, "object"},
        {"{" NORMALIZER "," PRE_TOKENIZER "}", STATUS_UNSUPPORTED, "model"},
        {"{" PRE_TOKENIZER "," MODEL ",\"sampling\":1}", STATUS_UNSUPPORTED, "sampling"},
        {"{\"version\":\"2.0\"," PRE_TOKENIZER "," MODEL "}", STATUS_UNSUPPORTED, "version"},
        {"{\"truncation\":{\"direction\":\"Left\"}," PRE_TOKENIZER "," MODEL "}", STATUS_UNSUPPORTED, "direction"},
        {"{\"normalizer\":{\"type\":\"NFKC\"}," PRE_TOKENIZER "," MODEL "}", STATUS_UNSUPPORTED,
         "normalizer: type NFKC"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true}," PRE_TOKENIZER "," MODEL "}",
         STATUS_BAD_INPUT, "normalizer: handle_chinese_chars"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":1,\"handle_chinese_chars\":true,\"lowercase\":"
         "true}," PRE_TOKENIZER "," MODEL "}",
         STATUS_BAD_INPUT, "normalizer: clean_text"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"lowercase\":"
         "true,"
         "\"fold\":true}," PRE_TOKENIZER "," MODEL "}",
         STATUS_UNSUPPORTED, "normalizer: the field fold"},
        {"{" NORMALIZER "," MODEL "}", STATUS_UNSUPPORTED, "pre_tokenizer: type null"},
        {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL "}", STATUS_UNSUPPORTED,
         "pre_tokenizer: type Whitespace"},
        {"{" PRE_TOKENIZER ",\"model\":{\"type\":\"WordLevel\"}}", STATUS_UNSUPPORTED, "model: type WordLevel"},
        {"{" PRE_TOKENIZER ",\"model\":{\"type\":\"WordPiece\"}}", STATUS_BAD_INPUT, "model: unk_token"},
        {"{" PRE_TOKENIZER "," MODEL_OF("[]") "}", STATUS_BAD_INPUT, "model.vocab"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{}") "}", STATUS_BAD_INPUT, "vocabulary is empty"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"a\":0}") "}", STATUS_BAD_INPUT, "unk_token"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\":-1}") "}", STATUS_BAD_INPUT, "model.vocab"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\":1.5}") "}", STATUS_BAD_INPUT, "model.vocab"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\":4294967296}") "}", STATUS_BAD_INPUT, "model.vocab"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\":0}") "}", STATUS_BAD_INPUT, "two tokens"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"[UNK]\":1}") "}", STATUS_BAD_INPUT, "[UNK]"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\\u0000b\":1}") "}", STATUS_BAD_INPUT, "NUL"},
        {"{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"\xFF\":1}") "}", STATUS_BAD_INPUT, "UTF-8"},
        {"{" PRE_TOKENIZER "," MODEL ",\"added_tokens\":{}}", STATUS_BAD_INPUT, "added_tokens"},
        {"{" PRE_TOKENIZER "," MODEL ",\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\"}]}", STATUS_BAD_INPUT,
         "added_tokens: single_word"},
        {"{" PRE_TOKENIZER "," MODEL ",\"added_tokens\":[" ADDED_TOKEN("7", "[CLS]", "false") "]}", STATUS_BAD_INPUT,
         "[CLS]"},
        {"{" PRE_TOKENIZER "," MODEL ",\"added_tokens\":[" ADDED_TOKEN("5", "new", "false") "]}", STATUS_BAD_INPUT,
         "new"},
        {"{" PRE_TOKENIZER "," MODEL
         ",\"added_tokens\":[" ADDED_TOKEN("1", "[CLS]", "false") "," ADDED_TOKEN("1", "[CLS]", "false") "]}",
         STATUS_BAD_INPUT, "added_tokens"},
        {"{" NORMALIZER "," PRE_TOKENIZER "," MODEL ",\"added_tokens\":[" ADDED_TOKEN("4", "\\u200b", "true") "]}",
         STATUS_BAD_INPUT, "added_tokens"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"Other\"}}", STATUS_UNSUPPORTED,
         "post_processor: type Other"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"Sequence\"}}", STATUS_BAD_INPUT,
         "post_processor.processors"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
         "\"BertProcessing\"},{\"type\":\"BertProcessing\"}]}}",
         STATUS_UNSUPPORTED, "post_processor.processors: type BertProcessing"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",1],"
         "\"sep\":[\"[SEP]\",4]}}",
         STATUS_BAD_INPUT, "post_processor: the id 4"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",1]}}",
         STATUS_BAD_INPUT, "post_processor: sep"},
        {"{" PRE_TOKENIZER "," MODEL
         ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"[CLS]\",\"type_id\":0}}],\"special_tokens\":{\"[CLS]\":{\"ids\":[1]}}}}",
         STATUS_UNSUPPORTED, "post_processor.single"},
        {"{" PRE_TOKENIZER "," MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":"
         "{\"id\":\"A\",\"type_id\":1}}]}}",
         STATUS_UNSUPPORTED, "type_id"},
        {"{" PRE_TOKENIZER "," MODEL
         ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"[X]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{}}}",
         STATUS_BAD_INPUT, "special_tokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("tokenizer.json", bad[i].json);
        refused(bad[i].status, "tokenizer.json", bad[i].field);
    }
}

TEST_WITH(reads_a_template, make_directory, remove_directory)
{
    put("tokenizer.json", "{" NORMALIZER "," PRE_TOKENIZER "," MODEL
                          ",\"padding\":{\"strategy\":{\"Fixed\":9}},\"truncation\":{\"direction\":"
                          "\"Right\",\"max_length\":3},\"decoder\":null,\"added_tokens\":[" ADDED_TOKEN(
                              "4", "new", "false") "],"
                                                   "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                                                   "\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"
                                                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{"
                                                   "\"id\":\"end\",\"type_id\":0}}],\"pair\":[],"
                                                   "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[1],"
                                                   "\"tokens\":[\"[CLS]\"]},\"end\":{\"id\":\"end\","
                                                   "\"ids\":[2,0],\"tokens\":[\"[SEP]\",\"[UNK]\"]}}}}");
    struct tokenizer *tokenizer = must_open();
    ENCODES_TO(tokenizer, "A b anew", 1, 3, 0, 3, 4, 2, 0);
    assert_int_equal(tokenizer_vocabulary(tokenizer), 5);
    assert_int_equal(tokenizer_max_tokens(tokenizer), 0);
    tokenizer_close(tokenizer);
}

/* Checks that `processor` gives the pair of "a" and "b" these ids, those from `second` on with type 1; 0: without
 * types. */
static void check_pair(const char *processor, const int32_t *expected, uint32_t count, uint32_t second)
{
    static const int32_t query[] = {7};
    char json[2048];
    int32_t ids[16];
    uint32_t got, from;
    bool truncated, types;
    struct err err;
    snprintf(json, sizeof json,
             "{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"[C]\":1,\"[S]\":2,\"a\":7,\"b\":8}") ",%s}", processor);
    put("tokenizer.json", json);
    struct tokenizer *tokenizer = must_open();
    assert_true(tokenizer_pairs(tokenizer, &types));
    assert_int_equal(types, second > 0);
    assert_int_equal(tokenizer_pair_bound(tokenizer, 1, 1), count);
    assert_int_equal(tokenizer_encode_pair(tokenizer, query, 1, "b", 1, 16, ids, &got, &from, &truncated, &err),
                     STATUS_OK);
    assert_int_equal(got, count);
    assert_memory_equal(ids, expected, count * sizeof *ids);
    if (types) { assert_int_equal(from, second); }
    tokenizer_close(tokenizer);
}

#define TEMPLATE(pair)                                                                                                 \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" TEXT(                                           \
        "A", "0") "],\"pair\":[" pair                                                                                  \
                  "],\"special_tokens\":{\"[C]\":{\"ids\":[1]},\"[S]\":{\"ids\":[2]},\"[X]\":{\"ids\":[99]}}}"
#define MANY(what) what what what what what
#define TEXT(name, type) "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define TOKEN(name, type) "{\"SpecialToken\":{\"id\":\"[" name "]\",\"type_id\":" type "}}"
#define ENDS "\"cls\":[\"[C]\",1],\"sep\":[\"[S]\",2]}"

TEST_WITH(pairs_are_as_the_post_processor_says, make_directory, remove_directory)
{
    check_pair("\"post_processor\":{\"type\":\"BertProcessing\"," ENDS, (const int32_t[]){1, 7, 2, 8, 2}, 5, 3);
    check_pair("\"post_processor\":{\"type\":\"RobertaProcessing\"," ENDS, (const int32_t[]){1, 7, 2, 2, 8, 2}, 6, 0);
    check_pair("\"post_processor\":null", (const int32_t[]){7, 8}, 2, 1);
    check_pair(TEMPLATE(TEXT("A", "0") "," TOKEN("S", "0") "," TOKEN("C", "1") "," TEXT("B", "1")),
               (const int32_t[]){7, 2, 1, 8}, 4, 2);
    check_pair(TEMPLATE(TOKEN("C", "0") "," TEXT("A", "0") "," TEXT("B", "0") "," TOKEN("S", "0")),
               (const int32_t[]){1, 7, 8, 2}, 4, 0);
    static const char *const strange[] = {
        TEMPLATE(""),
        TEMPLATE(TEXT("A", "0")),
        TEMPLATE(TEXT("B", "0") "," TEXT("A", "0")),
        TEMPLATE(TEXT("A", "1") "," TEXT("B", "1")),
        TEMPLATE(TEXT("A", "0") "," TEXT("B", "0") "," TOKEN("S", "1")),
        TEMPLATE(TEXT("A", "0") "," TEXT("B", "1") "," TOKEN("S", "0")),
        TEMPLATE(TEXT("A", "0") "," TEXT("B", "2")),
        TEMPLATE(TEXT("A", "0") "," TEXT("B", "0") "," TOKEN("X", "0")), /* has an id above the vocabulary */
        TEMPLATE(MANY(MANY(TOKEN("S", "0") ",")) TEXT("A", "0") "," TEXT("B", "0")),
    };
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        char json[2048];
        bool types;
        snprintf(json, sizeof json, "{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"[C]\":1,\"[S]\":2}") ",%s}",
                 strange[i]);
        put("tokenizer.json", json);
        struct tokenizer *tokenizer = must_open(); /* it may embed */
        assert_false(tokenizer_pairs(tokenizer, &types));
        tokenizer_close(tokenizer);
    }
}

TEST_WITH(no_post_processor_adds_nothing, make_directory, remove_directory)
{
    put("tokenizer.json", "{" PRE_TOKENIZER "," MODEL_OF("{\"[UNK]\":0,\"a\":7,\"\":3}") "}");
    struct tokenizer *tokenizer = must_open();
    ENCODES_TO(tokenizer, "a A", 7, 0);
    assert_int_equal(tokenizer_vocabulary(tokenizer), 8); /* ids may have gaps */
    tokenizer_close(tokenizer);
}

TEST_WITH(the_config_limits_texts_and_names_what_is_not_done, make_directory, remove_directory)
{
    put("tokenizer.json", "{" NORMALIZER "," PRE_TOKENIZER "," MODEL "}");
    put("tokenizer_config.json", "{\"do_lower_case\":true,\"strip_accents\":null,\"model_max_length\":384}");
    struct tokenizer *tokenizer = must_open();
    assert_int_equal(tokenizer_max_tokens(tokenizer), 384);
    tokenizer_close(tokenizer);
    put("tokenizer_config.json", "{\"model_max_length\":1000000000000000019884624838656}");
    tokenizer = must_open();
    assert_int_equal(tokenizer_max_tokens(tokenizer), 0);
    tokenizer_close(tokenizer);
    static const struct {
        const char *config;
        uint32_t limit;
    } lengths[] = {
        {"{\"max_len\":77}", 77},
        {"{\"max_len\":77,\"model_max_length\":384}", 384},
        {"{\"max_len\":77,\"model_max_length\":null}", 0},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put("tokenizer_config.json", lengths[i].config);
        tokenizer = must_open();
        assert_int_equal(tokenizer_max_tokens(tokenizer), lengths[i].limit);
        tokenizer_close(tokenizer);
    }
    static const char *const bad[][2] = {
        {"{\"truncation_side\":\"left\"}", "truncation_side"},
        {"{\"split_special_tokens\":true}", "split_special_tokens"},
        {"{\"do_basic_tokenize\":false}", "do_basic_tokenize"},
        {"{\"tokenizer_class\":\"T5TokenizerFast\"}", "tokenizer_class T5TokenizerFast"},
        {"{\"tokenizer_class\":\"RobertaTokenizer\"}", "tokenizer_class RobertaTokenizer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("tokenizer_config.json", bad[i][0]);
        refused(STATUS_UNSUPPORTED, "tokenizer", bad[i][1]);
    }
    put("tokenizer_config.json", "{\"model_max_length\":0}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "model_max_length");
    put("tokenizer_config.json", "{\"max_len\":0}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "max_len");
    put("tokenizer_config.json", "{\"tokenizer_class\":\"BertTokenizer\",\"do_lower_case\":\"yes\"}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "do_lower_case");
    put("tokenizer_config.json", "{}");
    put("config.json", "{\"tokenizer_class\":\"BertJapaneseTokenizer\"}");
    refused(STATUS_UNSUPPORTED, "config.json", "tokenizer_class BertJapaneseTokenizer");
}

/* BertTokenizer takes the words of a tokenizer.json; its steps and its template are its own. */
TEST_WITH(a_class_makes_its_own_steps, make_directory, remove_directory)
{
    enum { UNKNOWN, FIRST, LAST, A, MASK };
    put("tokenizer.json", "{" PRE_TOKENIZER "," MODEL "}"); /* without a normaliser and a post-processor */
    struct tokenizer *tokenizer = must_open();
    ENCODES_TO(tokenizer, "A a", UNKNOWN, A);
    tokenizer_close(tokenizer);
    put("config.json", "{\"model_type\":\"bert\"}");
    tokenizer = must_open();
    ENCODES_TO(tokenizer, "A a[MASK]", FIRST, A, A, MASK + 1, LAST); /* its id follows [PAD]'s, which is new as well */
    tokenizer_close(tokenizer);
    put("config.json", "{\"tokenizer_class\":\"BertTokenizerFast\"}");
    put("tokenizer_config.json", "{\"do_lower_case\":false,\"cls_token\":\"a\",\"pad_token\":\"a\"}");
    tokenizer = must_open();
    ENCODES_TO(tokenizer, "A a", A, UNKNOWN, A, LAST);
    assert_string_equal(tokenizer_class_of_model(tokenizer), "BertTokenizerFast");
    tokenizer_close(tokenizer);
    put("tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"do_lower_case\":true}");
    tokenizer = must_open();
    ENCODES_TO(tokenizer, "A a", UNKNOWN, A); /* follows the file */
    assert_string_equal(tokenizer_class_of_model(tokenizer), "");
    tokenizer_close(tokenizer);
}

/* Tokens that other files name are added; golden/directories_golden.py covers each way to name them. */
TEST_WITH(tokens_of_other_files_are_added, make_directory, remove_directory)
{
    enum { UNKNOWN, FIRST, LAST, A, NEW };
    static const struct {
        const char *file, *text;
        bool added;
    } files[] = {
        {"tokenizer_config.json", "{\"additional_special_tokens\":[\"[NEW]\"]}", true},
        {"tokenizer_config.json", "{\"extra_special_tokens\":{\"new_token\":\"[NEW]\"}}", true},
        {"tokenizer_config.json", "{\"bos_token\":\"[NEW]\"}", true},
        {"tokenizer_config.json", "{\"image_token\":\"[NEW]\"}", true},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"4\":{\"content\":\"[NEW]\"}}}", true},
        {"special_tokens_map.json", "{\"additional_special_tokens\":[\"[NEW]\"]}", true},
        {"special_tokens_map.json", "{\"mask_token\":{\"content\":\"[NEW]\",\"lstrip\":false}}", true},
        {"added_tokens.json", "{\"[NEW]\":4}", true},
        {"added_tokens.json", "{}", false},
    };
    put("tokenizer.json",
        "{" NORMALIZER "," PRE_TOKENIZER "," MODEL ",\"added_tokens\":[" ADDED_TOKEN("1", "[CLS]", "false") "]}");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put(files[i].file, files[i].text);
        struct tokenizer *tokenizer = must_open();
        assert_int_equal(tokenizer_vocabulary(tokenizer), files[i].added ? NEW + 1 : NEW);
        if (files[i].added) { ENCODES_TO(tokenizer, "a[NEW] [CLS]", A, NEW, FIRST); }
        tokenizer_close(tokenizer);
        put(files[i].file, "{}");
    }
    put("added_tokens.json", "{\"[NEW]\":4}");
    put("tokenizer_config.json", "{\"added_tokens_decoder\":{}}"); /* then the older files are not read */
    struct tokenizer *tokenizer = must_open();
    assert_int_equal(tokenizer_vocabulary(tokenizer), NEW);
    tokenizer_close(tokenizer);
    put("tokenizer_config.json", "{\"added_tokens_decoder\":{\"1\":7}}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "added_tokens_decoder");
    put("tokenizer_config.json", "{\"added_tokens_decoder\":{\"one\":{\"content\":\"a\"}}}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "one");
    put("tokenizer_config.json", "{\"extra_special_tokens\":[7]}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "extra_special_tokens");
    put("tokenizer_config.json", "{}");
    put("special_tokens_map.json", "[]");
    refused(STATUS_BAD_INPUT, "special_tokens_map.json", "object");
    put("special_tokens_map.json", "{\"cls_token\":7}");
    refused(STATUS_BAD_INPUT, "special_tokens_map.json", "cls_token");
    put("special_tokens_map.json", "{}");
    put("added_tokens.json", "{\"[NEW]\":-1}");
    refused(STATUS_BAD_INPUT, "added_tokens.json", "id");
}

/* A token's id may be above the model's words, as that of Gemma's token for images; a text must not contain that token.
 */
TEST_WITH(a_token_that_the_model_does_not_know_is_refused_in_texts, make_directory, remove_directory)
{
    put("tokenizer.json",
        "{" NORMALIZER "," PRE_TOKENIZER "," MODEL ",\"added_tokens\":[" ADDED_TOKEN("4", "[NEW]", "false") "]}");
    struct tokenizer *tokenizer = must_open();
    int32_t ids[8];
    uint32_t count;
    bool truncated;
    struct err err = {0};
    assert_int_equal(tokenizer_fit(tokenizer, 3, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "vocab_size 3"));
    assert_int_equal(tokenizer_fit(tokenizer, 4, &err), STATUS_OK);
    ENCODES_TO(tokenizer, "a", 3);
    assert_int_equal(tokenizer_encode(tokenizer, "a [NEW]", 7, 8, ids, &count, &truncated, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "id 4"));
    assert_int_equal(count, 0);
    assert_int_equal(tokenizer_encode(tokenizer, "a [NEW]", 7, 1, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(tokenizer_fit(tokenizer, 5, &err), STATUS_OK);
    ENCODES_TO(tokenizer, "a [NEW]", 3, 4);
    tokenizer_close(tokenizer);
    put("config.json", "{\"model_type\":\"bert\"}");
    put("tokenizer_config.json", "{\"cls_token\":\"[NEW]\"}");
    tokenizer = must_open();
    assert_int_equal(tokenizer_fit(tokenizer, 4, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "id 4"));
    tokenizer_close(tokenizer);
}

TEST_WITH(reads_a_vocabulary_file, make_directory, remove_directory)
{
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n\nB\r\na\nsch\u00F6n\n\u6F22x");
    struct tokenizer *tokenizer = must_open();
    ENCODES_TO(tokenizer, "a AB B [MASK] sch\u00F6n", 2, 9, 9, 6, 1, 4, 1, 3); /* the second "a" counts */
    assert_int_equal(tokenizer_vocabulary(tokenizer), 12);
    tokenizer_close(tokenizer);
    put("tokenizer_config.json",
        "{\"do_lower_case\":false,\"tokenize_chinese_chars\":false,\"tokenizer_class\":"
        "\"BertTokenizer\",\"model_max_length\":512,\"cls_token\":\"[PAD]\",\"mask_token\":{\"content\":"
        "\"a\",\"lstrip\":true},\"additional_special_tokens\":[\"[NEW]\"]}");
    tokenizer = must_open();
    ENCODES_TO(tokenizer, "B sch\u00F6n \u6F22x aB [NEW]", 0, 8, 10, 11, 9, 8, 11, 3);
    assert_int_equal(tokenizer_max_tokens(tokenizer), 512);
    tokenizer_close(tokenizer);
}

TEST_WITH(a_bad_vocabulary_file_is_refused, make_directory, remove_directory)
{
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[MASK]\na\n");
    tokenizer_close(must_open()); /* [SEP] gets an id after them, which tokenizer_fit refuses for every model */
    put("vocab.txt", "[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n");
    refused(STATUS_BAD_INPUT, "vocab.txt", "unk_token");
    put("vocab.txt", "a\n\xC3\n");
    refused(STATUS_BAD_INPUT, "vocab.txt", "UTF-8");
    put("vocab.txt", "a\nb\rc\n");
    refused(STATUS_BAD_INPUT, "vocab.txt", "line 2");
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    put("tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}");
    refused(STATUS_UNSUPPORTED, "tokenizer_config.json", "tokenizer_class");
    put("tokenizer_config.json", "{\"cls_token\":7}");
    refused(STATUS_BAD_INPUT, "tokenizer_config.json", "cls_token");
}

/* A vocab.json with RoBERTa's special tokens, the bytes, and "ab", with a blank before it and without. */
static void put_gpt2_files(void)
{
    struct buffer json = {0};
    int id = 4, other = 256;
    buffer_string(&json, "{\"<s>\":0,\"<pad>\":1,\"</s>\":2,\"<unk>\":3");
    for (int byte = 0; byte < 256; byte++, id++) {
        char letter[5] = {0};
        bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
        utf8_put(letter, (uint32_t)(visible ? byte : other++));
        buffer_format(&json, ",\"%s%s\":%d", byte == '"' || byte == '\\' ? "\\" : "", letter, id);
    }
    buffer_string(&json, ",\"ab\":260,\"\u0120ab\":261,\"<mask>\":262}");
    buffer_append(&json, "", 1);
    put("vocab.json", json.data);
    put("merges.txt", "#version: 0.2\na b\n\u0120 ab\n");
    buffer_free(&json);
}

TEST_WITH(vocab_json_and_merges_are_robertas, make_directory, remove_directory)
{
    enum { A = 4 + 'a', B = 4 + 'b', BLANK = 4 + ' ' };
    put_gpt2_files();
    struct tokenizer *tokenizer = must_open();
    bool types;
    ENCODES_TO(tokenizer, "ab ab b <mask>a", 0, 260, 261, BLANK, B, BLANK, 262, A, 2);
    assert_int_equal(tokenizer_pair_bound(tokenizer, 0, 0), 4);
    assert_true(tokenizer_pairs(tokenizer, &types) && !types);
    tokenizer_close(tokenizer);
    put("tokenizer_config.json",
        "{\"tokenizer_class\":\"RobertaTokenizer\",\"add_prefix_space\":true,\"mask_token\":{\"content\":\"<mask>\","
        "\"lstrip\":false,\"rstrip\":true}}");
    put("special_tokens_map.json", "{\"bos_token\":\"<s>\",\"sep_token\":{\"content\":\"</s>\",\"normalized\":false},"
                                   "\"mask_token\":{\"content\":\"<mask>\",\"rstrip\":true}}");
    tokenizer = must_open();
    ENCODES_TO(tokenizer, "ab <mask> ab", 0, 261, BLANK, 262, 261, 2);
    tokenizer_close(tokenizer);
}

TEST_WITH(what_is_wrong_with_merges, make_directory, remove_directory)
{
    static const char *const merges[][2] = {
        {"", "#version"},
        {"a b\n", "#version"},
        {"#version: 0.2\na\n", "line 2"},
        {"#version: 0.2\na b\n\nb a\n", "line 3"},
        {"#version: 0.2\na b c\n", "line 2"},
        {"#version: 0.2\na \n", "line 2"},
        {"#version: 0.2\na c\n", "merge 0"},
        {"#version: 0.2\na \xE2", "UTF-8"},
    };
    put_gpt2_files();
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        put("merges.txt", merges[i][0]);
        refused(STATUS_BAD_INPUT, "merges.txt", merges[i][1]);
    }
    put("merges.txt", "#version: 0.2");
    tokenizer_close(must_open());
    put("tokenizer_config.json", "{\"added_tokens_decoder\":{},\"tokenizer_class\":\"GPT2Tokenizer\"}");
    refused(STATUS_UNSUPPORTED, "tokenizer_config.json", "GPT2Tokenizer");
    put("tokenizer_config.json", "{\"cls_token\":null}");
    refused(STATUS_UNSUPPORTED, "tokenizer_config.json", "cls_token");
}

/* MPNet's vocabulary has BERT's special tokens beside its own, and files of 2020 do not name the class. */
TEST_WITH(a_vocab_txt_of_mpnet_is_told_by_the_family, make_directory, remove_directory)
{
    enum { FIRST, PAD, LAST, UNKNOWN, A, CLS, SEP, MASK };
    put("vocab.txt", "<s>\n<pad>\n</s>\n[UNK]\na\n[CLS]\n[SEP]\n<mask>\n");
    put("config.json", "{\"model_type\":\"bert\"}");
    struct tokenizer *bert = must_open();
    ENCODES_TO(bert, "A a", CLS, A, A, SEP);
    tokenizer_close(bert);
    for (int named = 0; named < 2; named++) {
        bool types;
        put("config.json", named ? "{\"model_type\":\"bert\"}" : "{\"model_type\":\"mpnet\"}");
        if (named) { put("tokenizer_config.json", "{\"tokenizer_class\":\"MPNetTokenizer\"}"); }
        struct tokenizer *tokenizer = must_open();
        ENCODES_TO(tokenizer, "A <mask>a z", FIRST, A, MASK, A, UNKNOWN, LAST);
        assert_int_equal(tokenizer_pair_bound(tokenizer, 0, 0), 4);
        assert_true(tokenizer_pairs(tokenizer, &types) && !types);
        tokenizer_close(tokenizer);
    }
    put("config.json", "[");
    put("tokenizer_config.json", "{}");
    refused(STATUS_BAD_INPUT, "config.json", "JSON");
}

TEST_WITH(no_file_at_all_is_not_found, make_directory, remove_directory)
{
    refused(STATUS_NOT_FOUND, "tokenizer.json", "vocab.txt");
}
