/* Every value is a pure function of seed, tensor name and element index (no running generator), so that shards, dtypes
 * and prefixes do not change it and a test can ask for a single one. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model_builder_parts.h"

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

static uint64_t hash_name(uint64_t seed, const char *name)
{
    uint64_t hash = mix(seed);
    for (; *name != '\0'; name++)
        hash = mix(hash ^ (unsigned char)*name);
    return hash;
}

/* Near enough to normal with variance 1: four 16-bit uniforms, centred and scaled. */
static float gaussian(uint64_t key, uint64_t element)
{
    uint64_t bits = mix(key ^ element * 0xD6E8FEB86659FD93ull);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 16 * i & 0xFFFF);
    return (float)(sum - 2 * 65535) * (1.0f / 37837.0f);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Values here are normal halves or smaller; what is below a half's normal range is rounded to a multiple of 2^-24. */
static uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    int exponent = (int)(bits >> 23 & 0xFF) - 127;
    if (exponent < -14) {
        float magnitude = (value < 0 ? -value : value) * 0x1p24f;
        return sign | (uint16_t)(magnitude + 0.5f);
    }
    uint32_t rounded = (bits & 0x7FFFFFFF) + 0xFFF + (bits >> 13 & 1);
    return sign | (uint16_t)((rounded >> 13) - (112u << 10));
}

static float from_f16(uint16_t half)
{
    int exponent = half >> 10 & 0x1F;
    float mantissa = (float)(half & 0x3FF);
    float value = exponent == 0 ? mantissa * 0x1p-24f : (1024.0f + mantissa) * 0x1p-25f;
    for (int i = 1; i < exponent; i++)
        value *= 2;
    value = exponent == 0 ? value : value * 2;
    return half & 0x8000 ? -value : value;
}

static bool ends_with(const char *name, const char *tail)
{
    size_t length = strlen(name), tail_length = strlen(tail);
    return length >= tail_length && strcmp(name + length - tail_length, tail) == 0;
}

/* LayerNorm gains lie around 1, everything else around 0. */
static float exact_value(const struct model_spec *spec, const char *name, uint64_t key, uint64_t element)
{
    float value = gaussian(key, element);
    if (ends_with(name, "LayerNorm.weight") || ends_with(name, "layer_norm.weight"))
        return 1.0f + 0.1f * value;
    return value * (ends_with(name, ".bias") ? 0.1f : spec->scale);
}

float model_weight(const struct model_spec *spec, const char *name, uint64_t element)
{
    float value = exact_value(spec, name, hash_name(spec->seed, name), element);
    if (spec->dtype == DTYPE_F32)
        return value;
    if (spec->dtype == DTYPE_F16)
        return from_f16(to_f16(value));
    uint32_t bits = (uint32_t)to_bf16(value) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

struct piece {
    char name[96]; /* without prefix, new spelling */
    uint32_t rank;
    uint64_t rows, columns;
    bool i64;
};

struct pieces {
    struct piece list[8 + 16 * 64];
    size_t count;
};

static void add(struct pieces *pieces, uint32_t rank, uint64_t rows, uint64_t columns, const char *format, ...)
    PRINTF_LIKE(5, 6);

static void add(struct pieces *pieces, uint32_t rank, uint64_t rows, uint64_t columns, const char *format, ...)
{
    assert(pieces->count < sizeof pieces->list / sizeof pieces->list[0]);
    struct piece *piece = &pieces->list[pieces->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(piece->name, sizeof piece->name, format, args);
    va_end(args);
    piece->rank = rank;
    piece->rows = rows;
    piece->columns = columns;
}

static void add_layer(struct pieces *pieces, const struct model_spec *spec, uint32_t l)
{
    static const char *const names[2][8] = {
        {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
         "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"},
        {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1",
         "ffn.lin2", "output_layer_norm"}};
    const struct {
        uint32_t rank, rows, columns;
    } shapes[8] = {{2, spec->hidden, spec->hidden},
                   {2, spec->hidden, spec->hidden},
                   {2, spec->hidden, spec->hidden},
                   {2, spec->hidden, spec->hidden},
                   {1, spec->hidden, 1},
                   {2, spec->intermediate, spec->hidden},
                   {2, spec->hidden, spec->intermediate},
                   {1, spec->hidden, 1}};
    const char *layer = spec->distilbert ? "transformer.layer" : "encoder.layer";
    for (int i = 0; i < 8; i++) {
        const char *name = names[spec->distilbert][i];
        add(pieces, shapes[i].rank, shapes[i].rows, shapes[i].columns, "%s.%u.%s.weight", layer, l, name);
        add(pieces, 1, shapes[i].rows, 1, "%s.%u.%s.bias", layer, l, name);
    }
}

static void list_pieces(struct pieces *pieces, const struct model_spec *spec)
{
    pieces->count = 0;
    add(pieces, 2, spec->vocabulary, spec->hidden, "embeddings.word_embeddings.weight");
    add(pieces, 2, spec->positions, spec->hidden, "embeddings.position_embeddings.weight");
    if (!spec->distilbert)
        add(pieces, 2, spec->token_types, spec->hidden, "embeddings.token_type_embeddings.weight");
    add(pieces, 1, spec->hidden, 1, "embeddings.LayerNorm.weight");
    add(pieces, 1, spec->hidden, 1, "embeddings.LayerNorm.bias");
    for (uint32_t l = 0; l < spec->layers; l++)
        add_layer(pieces, spec, l);
    if (spec->pooler && spec->distilbert) {
        add(pieces, 2, spec->hidden, spec->hidden, "vocab_transform.weight");
        add(pieces, 1, spec->hidden, 1, "vocab_layer_norm.bias");
        add(pieces, 1, spec->vocabulary, 1, "vocab_projector.bias");
        add(pieces, 2, spec->hidden, spec->hidden, "pre_classifier.weight");
    } else if (spec->pooler) {
        add(pieces, 2, spec->hidden, spec->hidden, "pooler.dense.weight");
        add(pieces, 1, spec->hidden, 1, "pooler.dense.bias");
    }
    if (spec->position_ids) {
        add(pieces, 2, 1, spec->positions, "embeddings.position_ids");
        pieces->list[pieces->count - 1].i64 = true;
    }
}

static void name_in_file(const struct model_spec *spec, const struct piece *piece, char to[160])
{
    snprintf(to, 160, "%s%s", spec->prefix, piece->name);
    char *norm = strstr(to, "LayerNorm.");
    if (!spec->gamma_beta || norm == NULL)
        return;
    norm += strlen("LayerNorm.");
    snprintf(norm, 8, "%s", strcmp(norm, "weight") == 0 ? "gamma" : "beta");
}

static size_t element_bytes(const struct model_spec *spec, const struct piece *piece)
{
    return piece->i64 ? 8 : spec->dtype == DTYPE_F32 ? 4 : 2;
}

static void write_header(FILE *file, const struct model_spec *spec, const struct piece *pieces, size_t count)
{
    static const char *const dtypes[] = {[DTYPE_F32] = "F32", [DTYPE_F16] = "F16", [DTYPE_BF16] = "BF16"};
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory == NULL)
        builder_die("cannot open", "a memory stream");
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", memory);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        char name[160], shape[64];
        name_in_file(spec, &pieces[i], name);
        snprintf(shape, sizeof shape, pieces[i].rank == 2 ? "[%llu,%llu]" : "[%llu]",
                 (unsigned long long)pieces[i].rows, (unsigned long long)pieces[i].columns);
        uint64_t end = at + pieces[i].rows * pieces[i].columns * element_bytes(spec, &pieces[i]);
        fprintf(memory, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", name,
                pieces[i].i64 ? "I64" : dtypes[spec->dtype], shape, (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    fputc('}', memory);
    fflush(memory);
    for (size_t pad = (8 - length % 8) % 8; pad > 0; pad--)
        fputc(' ', memory);
    fclose(memory);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xFF), file);
    fwrite(text, 1, length, file);
    free(text);
}

static void write_piece(FILE *file, const struct model_spec *spec, const struct piece *piece)
{
    uint64_t key = hash_name(spec->seed, piece->name), elements = piece->rows * piece->columns;
    size_t width = element_bytes(spec, piece);
    unsigned char chunk[8192];
    for (uint64_t i = 0; i < elements;) {
        size_t used = 0;
        for (; i < elements && used + width <= sizeof chunk; i++, used += width) {
            float value = piece->i64 ? 0 : exact_value(spec, piece->name, key, i);
            uint16_t half = spec->dtype == DTYPE_F16 ? to_f16(value) : to_bf16(value);
            memcpy(chunk + used, width == 8 ? (void *)&i : width == 4 ? (void *)&value : (void *)&half, width);
        }
        fwrite(chunk, 1, used, file);
    }
}

static void write_weight_file(const struct model_spec *spec, const char *directory, const char *name,
                              const struct piece *pieces, size_t count)
{
    FILE *file = builder_create(directory, name);
    write_header(file, spec, pieces, count);
    for (size_t i = 0; i < count; i++)
        write_piece(file, spec, &pieces[i]);
    builder_finish(file, name);
}

static void write_shards(const struct model_spec *spec, const char *directory, const struct pieces *pieces)
{
    FILE *index = builder_create(directory, "model.safetensors.index.json");
    fputs("{\"metadata\":{\"total_size\":0},\"weight_map\":{", index);
    for (uint32_t s = 0; s < spec->shards; s++) {
        size_t first = pieces->count * s / spec->shards, last = pieces->count * (s + 1) / spec->shards;
        char shard[64];
        snprintf(shard, sizeof shard, "model-%05u-of-%05u.safetensors", s + 1, spec->shards);
        write_weight_file(spec, directory, shard, pieces->list + first, last - first);
        for (size_t i = first; i < last; i++) {
            char name[160];
            name_in_file(spec, &pieces->list[i], name);
            fprintf(index, "%s\"%s\":\"%s\"", i > 0 ? "," : "", name, shard);
        }
    }
    fputs("}}", index);
    builder_finish(index, "model.safetensors.index.json");
}

void builder_write_weights(const struct model_spec *spec, const char *directory)
{
    struct pieces *pieces = calloc(1, sizeof *pieces);
    if (pieces == NULL)
        builder_die("no memory for", "the list of tensors");
    list_pieces(pieces, spec);
    if (spec->shards > 0)
        write_shards(spec, directory, pieces);
    else
        write_weight_file(spec, directory, "model.safetensors", pieces->list, pieces->count);
    free(pieces);
}
