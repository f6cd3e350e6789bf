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

MODEL_TEST(reads_weights_of_every_kind)
{
    static const struct {
        const char *prefix;
        enum dtype dtype;
        uint32_t shards;
        bool gamma_beta, position_ids, pooler, distilbert;
    } cases[] = {
        {"", DTYPE_F32},
        {"", DTYPE_F16},
        {"", DTYPE_BF16},
        {"bert.", DTYPE_F32},
        {"model.", DTYPE_F32},
        {"0.auto_model.", DTYPE_F32},
        {"model.bert.", DTYPE_F32},
        {"bert.", DTYPE_F32, .gamma_beta = true},
        {"", DTYPE_F32, .position_ids = true, .pooler = true}, /* neither is read */
        {"bert.", DTYPE_F32, .position_ids = true, .pooler = true},
        {"", DTYPE_F32, .distilbert = true},
        {"distilbert.", DTYPE_F16, .distilbert = true, .pooler = true},
        {"", DTYPE_BF16, .shards = 1},
        {"", DTYPE_BF16, .shards = 2},
        {"", DTYPE_BF16, .shards = 5},
        {"", DTYPE_BF16, .shards = 37},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_spec spec = model_spec_tiny();
        struct check check = {.spec = &spec};
        spec.prefix = cases[i].prefix;
        spec.dtype = cases[i].dtype;
        spec.shards = cases[i].shards;
        spec.gamma_beta = cases[i].gamma_beta;
        spec.position_ids = cases[i].position_ids;
        spec.pooler = cases[i].pooler;
        spec.distilbert = cases[i].distilbert;
        build(&spec);
        weights_visit(opened(NULL), check_tensor, &check);
        assert_int_equal(check.tensors, (spec.distilbert ? 4 : 5) + 16 * spec.layers);
    }
}

MODEL_TEST(refuses_berts_weights_for_distilbert)
{
    struct model_spec spec = model_spec_tiny();
    spec.distilbert = true;
    spec.prefix = "bert.";
    build(&spec);
    refused(NULL, STATUS_UNSUPPORTED, "tensor bert.embeddings.word_embeddings.weight",
            "not part of the distilbert model");
}

#define INDEX_FILE "model.safetensors.index.json"
#define FIRST_SHARD "model-00001-of-00002.safetensors"
#define WORDS "'embeddings.word_embeddings.weight'"

static struct model_spec two_shards(void)
{
    struct model_spec spec = model_spec_tiny();
    spec.shards = 2;
    return spec;
}

MODEL_TEST(refuses_a_shard_outside_the_folder)
{
    static const char *const names[] = {"../" FIRST_SHARD, "/etc/passwd",  "a/" FIRST_SHARD,    "..", "",
                                        "model.bin",       ".safetensors", "a\\\\b.safetensors"};
    const struct model_spec spec = two_shards();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char to[128];
        snprintf(to, sizeof to, WORDS ":'%s'", names[i]);
        EDITS_REFUSED(&spec, {INDEX_FILE, WORDS ":'" FIRST_SHARD "'", to, STATUS_BAD_INPUT,
                              "weight_map: the shard of embeddings.word_embeddings.weight"});
    }
}

MODEL_TEST(refuses_an_index_that_disagrees)
{
    const char *entry = WORDS ":'" FIRST_SHARD "',", *other = WORDS ":'model-00002-of-00002.safetensors',";
    const struct model_spec spec = two_shards();
    EDITS_REFUSED(&spec, {INDEX_FILE, entry, other, STATUS_BAD_INPUT, "weight_map lists"},
                  {INDEX_FILE, "'weight_map':{", "'weight_map':{'extra':'" FIRST_SHARD "',", STATUS_BAD_INPUT,
                   "weight_map lists"},
                  {INDEX_FILE, "'weight_map'", "'weights'", STATUS_BAD_INPUT, "weight_map is missing"},
                  {INDEX_FILE, NULL, "{'weight_map':{}}", STATUS_BAD_INPUT, "weight_map is empty"});
    build(&spec);
    edit_file(INDEX_FILE, entry, "");
    refused(NULL, STATUS_BAD_INPUT, FIRST_SHARD, "embeddings.word_embeddings.weight is missing");
}

/* A third shard has another model's tensors, among them those of a layer that this model lacks. The index takes one of
 * them. */
MODEL_TEST(reads_a_tensor_where_the_index_says)
{
    struct model_spec spec = two_shards(), other = model_spec_tiny();
    other.seed++;
    other.layers++;
    build(&spec);
    char *others = model_build(&other), from[256], to[256];
    struct check check = {&spec, 0, "encoder.layer.1.output.dense.weight", &other};
    snprintf(from, sizeof from, "%s/model.safetensors", others);
    snprintf(to, sizeof to, "%s/head.safetensors", made.directory);
    assert_int_equal(symlink(from, to), 0);
    edit_file(INDEX_FILE, "'encoder.layer.1.output.dense.weight':'model-00002-of-00002.safetensors'",
              "'encoder.layer.1.output.dense.weight':'head.safetensors'");
    weights_visit(opened(NULL), check_tensor, &check);
    assert_int_equal(check.tensors, 5 + 16 * spec.layers);
    model_build_remove(others);
}

MODEL_TEST(refuses_a_missing_shard)
{
    struct model_spec spec = two_shards();
    build(&spec);
    drop_file(FIRST_SHARD);
    refused(NULL, STATUS_NOT_FOUND, FIRST_SHARD, "cannot open");
}

MODEL_TEST(never_reads_pickled_weights)
{
    drop_file("model.safetensors");
    put_file("pytorch_model.bin", "\x80\x02.");
    refused(NULL, STATUS_BAD_INPUT, "pytorch_model.bin is pickled", "never read");
}

/* Replaces equally long text in the weight file, which holds NULs. */
static void patch_weights(const char *from, const char *to)
{
    size_t length, size = strlen(from), at = 0;
    char *bytes = model_file_read(made.directory, "model.safetensors", &length);
    if (size != strlen(to)) { fail_msg("%s and %s differ in length", from, to); }
    while (at + size <= length && memcmp(bytes + at, from, size) != 0) { at++; }
    assert_true(at + size <= length);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", made.directory);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(to, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

MODEL_TEST(refuses_wrong_tensors)
{
    static const struct {
        const char *from, *to, *says;
        enum status status;
    } cases[] = {
        /* missing: it has the name of a head's tensor */
        {"'encoder.layer.1.output.dense.bias'", "'cls.der.layer.1.output.dense.bias'",
         "encoder.layer.1.output.dense.bias is missing", STATUS_BAD_INPUT},
        {"'embeddings.LayerNorm.weight'", "'pooler.ngs.LayerNorm.weight'", "embeddings.LayerNorm.weight is missing",
         STATUS_BAD_INPUT},
        /* unknown inside and outside of the encoder */
        {"'encoder.layer.1.output.dense.bias'", "'encoder.layer.9.output.dense.bias'",
         "encoder.layer.9.output.dense.bias is not part", STATUS_UNSUPPORTED},
        {"'encoder.layer.0.attention.self.key.bias'", "'encoder.layer.0.attention.self.pos.bias'",
         "attention.self.pos.bias is not part", STATUS_UNSUPPORTED},
        {"'embeddings.LayerNorm.bias'", "'projection.LayerNorm.bias'", "projection.LayerNorm.bias is not part",
         STATUS_UNSUPPORTED},
        /* twice, once with a prefix */
        {"'encoder.layer.1.attention.self.key.bias'", "'model.encoder.layer.1.output.dense.bias'",
         "encoder.layer.1.output.dense.bias is there twice", STATUS_BAD_INPUT},
        /* shapes and dtypes */
        {"'shape':[512,32]", "'shape':[32,512]", "word_embeddings.weight must have the shape [512, 32]",
         STATUS_BAD_INPUT},
        {"'shape':[64,32]", "'shape':[2048] ", "position_embeddings.weight must have the shape [64, 32]",
         STATUS_BAD_INPUT},
        {"'dtype':'F32','shape':[2,32]", "'dtype':'I32','shape':[2,32]", "token_type_embeddings.weight has dtype I32",
         STATUS_UNSUPPORTED},
        {"'dtype':'F32','shape':[512,32]", "'dtype':'F64','shape':[256,32]", "must have the shape", STATUS_BAD_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)build_tiny(NULL);
        patch_weights(quoted(cases[i].from), quoted(cases[i].to));
        refused(NULL, cases[i].status, "model.safetensors: tensor", cases[i].says);
    }
}

MODEL_TEST(refuses_weights_of_another_config)
{
    edit_file("config.json", "'num_hidden_layers': 2", "'num_hidden_layers': 3");
    refused(NULL, STATUS_BAD_INPUT, "model.safetensors", "encoder.layer.2.");
    edit_file("config.json", "'num_hidden_layers': 3", "'num_hidden_layers': 1");
    refused(NULL, STATUS_UNSUPPORTED, "model.safetensors", "encoder.layer.1.");
    edit_file("config.json", "'num_hidden_layers': 1", "'num_hidden_layers': 2");
    edit_file("config.json", "'intermediate_size': 64", "'intermediate_size': 128");
    refused(NULL, STATUS_BAD_INPUT, "model.safetensors", "intermediate.dense");
}
