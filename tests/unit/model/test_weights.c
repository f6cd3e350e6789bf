/* The weights under their many names, dtypes and files: every tensor is read back and compared with the one written. */
#include "model_expect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/weights.h"

struct check {
    const struct model_spec *spec;
    size_t tensors;
    const char *replaced; /* tensor, which has the weights of the next spec */
    const struct model_spec *by;
};

static void check_tensor(void *context, const char *name, struct tensor *const *parts, uint32_t count, uint32_t rank,
                         uint64_t rows, uint64_t columns)
{
    struct check *check = context;
    const struct tensor *tensor = parts[0];
    const struct model_spec *spec = check->replaced && strcmp(name, check->replaced) == 0 ? check->by : check->spec;
    assert_int_equal(count, 1);
    check->tensors++;
    assert_int_equal(tensor->rank, rank);
    assert_int_equal(tensor->dtype, check->spec->dtype);
    assert_int_equal(tensor->shape[0], rows);
    assert_int_equal(tensor->shape[1], columns);
    assert_int_equal(tensor->elements, rows * columns);
    float *values = malloc(tensor->elements * sizeof *values);
    assert_non_null(values);
    tensor_read_f32(tensor, 0, tensor->elements, values);
    for (size_t i = 0; i < tensor->elements; i += 1 + i / 64) {
        if (values[i] != model_weight(spec, name, i)) {
            fail_msg("%s[%zu] is %g, written was %g", name, i, (double)values[i], (double)model_weight(spec, name, i));
        }
    }
    free(values);
}

static void check_all(const struct model_spec *spec)
{
    char *directory = model_build(spec);
    struct model *model = expect_model(directory, NULL);
    struct check check = {.spec = spec};
    weights_visit(model, check_tensor, &check);
    assert_int_equal(check.tensors, (spec->distilbert ? 4 : 5) + 16 * spec->layers);
    model_close(model);
    model_build_remove(directory);
}

TEST(reads_every_dtype)
{
    struct model_spec spec = model_spec_tiny();
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        spec.dtype = (enum dtype)dtype;
        check_all(&spec);
    }
}

TEST(reads_every_prefix)
{
    static const char *const prefixes[] = {"bert.", "model.", "0.auto_model.", "model.bert."};
    struct model_spec spec = model_spec_tiny();
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        spec.prefix = prefixes[i];
        check_all(&spec);
    }
}

TEST(reads_gamma_and_beta)
{
    struct model_spec spec = model_spec_tiny();
    spec.gamma_beta = true;
    spec.prefix = "bert.";
    check_all(&spec);
}

TEST(skips_position_ids_and_heads)
{
    struct model_spec spec = model_spec_tiny();
    spec.position_ids = true;
    spec.pooler = true;
    check_all(&spec);
    spec.prefix = "bert.";
    check_all(&spec);
}

TEST(reads_distilbert)
{
    struct model_spec spec = model_spec_tiny();
    spec.distilbert = true;
    check_all(&spec);
    spec.prefix = "distilbert.";
    spec.pooler = true;
    spec.dtype = DTYPE_F16;
    check_all(&spec);
    spec.prefix = "bert.";
    char *directory = model_build(&spec);
    expect_refused(directory, NULL, STATUS_UNSUPPORTED, "tensor bert.embeddings.word_embeddings.weight",
                   "not part of the distilbert model");
    model_build_remove(directory);
}

TEST(reads_shards)
{
    struct model_spec spec = model_spec_tiny();
    spec.dtype = DTYPE_BF16;
    static const uint32_t counts[] = {1, 2, 5, 37};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        spec.shards = counts[i];
        check_all(&spec);
    }
}

#define INDEX_FILE "model.safetensors.index.json"
#define FIRST_SHARD "model-00001-of-00002.safetensors"

static struct model_spec two_shards(void)
{
    struct model_spec spec = model_spec_tiny();
    spec.shards = 2;
    return spec;
}

TEST(refuses_a_shard_outside_the_folder)
{
    static const char *const names[] = {"../" FIRST_SHARD, "/etc/passwd",  "a/" FIRST_SHARD,    "..", "",
                                        "model.bin",       ".safetensors", "a\\\\b.safetensors"};
    struct model_spec spec = two_shards();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char to[128];
        snprintf(to, sizeof to, "\"embeddings.word_embeddings.weight\":\"%s\"", names[i]);
        expect_edit_refused(&spec, INDEX_FILE, "\"embeddings.word_embeddings.weight\":\"" FIRST_SHARD "\"", to,
                            STATUS_BAD_INPUT, "weight_map: the shard of embeddings.word_embeddings.weight");
    }
}

TEST(refuses_an_index_that_disagrees)
{
    const char *entry = "\"embeddings.word_embeddings.weight\":\"" FIRST_SHARD "\",";
    struct model_spec spec = two_shards();
    expect_edit_refused(&spec, INDEX_FILE, entry,
                        "\"embeddings.word_embeddings.weight\":\"model-00002-of-00002.safetensors\",", STATUS_BAD_INPUT,
                        "weight_map lists");
    expect_edit_refused(&spec, INDEX_FILE, "\"weight_map\":{", "\"weight_map\":{\"extra\":\"" FIRST_SHARD "\",",
                        STATUS_BAD_INPUT, "weight_map lists");
    expect_edit_refused(&spec, INDEX_FILE, "\"weight_map\"", "\"weights\"", STATUS_BAD_INPUT, "weight_map is missing");
    char *directory = model_build(&spec);
    model_file_edit(directory, INDEX_FILE, entry, "");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, FIRST_SHARD, "embeddings.word_embeddings.weight is missing");
    model_file_write(directory, INDEX_FILE, "{\"weight_map\":{}}");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, INDEX_FILE, "weight_map is empty");
    model_build_remove(directory);
}

/* A third shard has another model's tensors, among them those of a layer that this model lacks. The index takes one of
 * them. */
TEST(reads_a_tensor_where_the_index_says)
{
    struct model_spec spec = two_shards(), other = model_spec_tiny();
    other.seed++;
    other.layers++;
    char *directory = model_build(&spec), *others = model_build(&other), from[256], to[256];
    struct check check = {&spec, 0, "encoder.layer.1.output.dense.weight", &other};
    snprintf(from, sizeof from, "%s/model.safetensors", others);
    snprintf(to, sizeof to, "%s/head.safetensors", directory);
    assert_int_equal(symlink(from, to), 0);
    model_file_edit(directory, INDEX_FILE,
                    "\"encoder.layer.1.output.dense.weight\":\"model-00002-of-00002.safetensors\"",
                    "\"encoder.layer.1.output.dense.weight\":\"head.safetensors\"");
    struct model *model = expect_model(directory, NULL);
    weights_visit(model, check_tensor, &check);
    assert_int_equal(check.tensors, 5 + 16 * spec.layers);
    model_close(model);
    model_build_remove(directory);
    model_build_remove(others);
}

TEST(refuses_a_missing_shard)
{
    struct model_spec spec = two_shards();
    char *directory = model_build(&spec);
    model_file_remove(directory, FIRST_SHARD);
    expect_refused(directory, NULL, STATUS_NOT_FOUND, FIRST_SHARD, "cannot open");
    model_build_remove(directory);
}

TEST(never_reads_pickled_weights)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    model_file_remove(directory, "model.safetensors");
    model_file_write(directory, "pytorch_model.bin", "\x80\x02.");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, "pytorch_model.bin is pickled", "never read");
    model_build_remove(directory);
}

/* Replaces equally long text in the weight file, which holds NULs. */
static void patch_weights(const char *directory, const char *from, const char *to)
{
    size_t length, size = strlen(from);
    assert_int_equal(size, strlen(to));
    char *bytes = model_file_read(directory, "model.safetensors", &length);
    size_t at = 0;
    while (at + size <= length && memcmp(bytes + at, from, size) != 0) { at++; }
    assert_true(at + size <= length);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(to, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

TEST(refuses_wrong_tensors)
{
    static const struct {
        const char *from, *to, *says;
        enum status status;
    } cases[] = {
        /* missing: it has the name of a head's tensor */
        {"\"encoder.layer.1.output.dense.bias\"", "\"cls.der.layer.1.output.dense.bias\"",
         "encoder.layer.1.output.dense.bias is missing", STATUS_BAD_INPUT},
        {"\"embeddings.LayerNorm.weight\"", "\"pooler.ngs.LayerNorm.weight\"", "embeddings.LayerNorm.weight is missing",
         STATUS_BAD_INPUT},
        /* unknown inside and outside of the encoder */
        {"\"encoder.layer.1.output.dense.bias\"", "\"encoder.layer.9.output.dense.bias\"",
         "encoder.layer.9.output.dense.bias is not part", STATUS_UNSUPPORTED},
        {"\"encoder.layer.0.attention.self.key.bias\"", "\"encoder.layer.0.attention.self.pos.bias\"",
         "attention.self.pos.bias is not part", STATUS_UNSUPPORTED},
        {"\"embeddings.LayerNorm.bias\"", "\"projection.LayerNorm.bias\"", "projection.LayerNorm.bias is not part",
         STATUS_UNSUPPORTED},
        /* twice, once with a prefix */
        {"\"encoder.layer.1.attention.self.key.bias\"", "\"model.encoder.layer.1.output.dense.bias\"",
         "encoder.layer.1.output.dense.bias is there twice", STATUS_BAD_INPUT},
        /* shapes and dtypes */
        {"\"shape\":[512,32]", "\"shape\":[32,512]", "word_embeddings.weight must have the shape [512, 32]",
         STATUS_BAD_INPUT},
        {"\"shape\":[64,32]", "\"shape\":[2048] ", "position_embeddings.weight must have the shape [64, 32]",
         STATUS_BAD_INPUT},
        {"\"dtype\":\"F32\",\"shape\":[2,32]", "\"dtype\":\"I32\",\"shape\":[2,32]",
         "token_type_embeddings.weight has dtype I32", STATUS_UNSUPPORTED},
        {"\"dtype\":\"F32\",\"shape\":[512,32]", "\"dtype\":\"F64\",\"shape\":[256,32]", "must have the shape",
         STATUS_BAD_INPUT},
    };
    struct model_spec spec = model_spec_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strlen(cases[i].from) != strlen(cases[i].to)) {
            fail_msg("case %zu: %s and %s differ in length", i, cases[i].from, cases[i].to);
        }
        char *directory = model_build(&spec);
        patch_weights(directory, cases[i].from, cases[i].to);
        expect_refused(directory, NULL, cases[i].status, "model.safetensors: tensor", cases[i].says);
        model_build_remove(directory);
    }
}

TEST(refuses_weights_of_another_config)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    model_file_edit(directory, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, "model.safetensors", "encoder.layer.2.");
    model_file_edit(directory, "config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1");
    expect_refused(directory, NULL, STATUS_UNSUPPORTED, "model.safetensors", "encoder.layer.1.");
    model_file_edit(directory, "config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2");
    model_file_edit(directory, "config.json", "\"intermediate_size\": 64", "\"intermediate_size\": 128");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, "model.safetensors", "intermediate.dense");
    model_build_remove(directory);
}
