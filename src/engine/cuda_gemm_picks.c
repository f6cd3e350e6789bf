/* The list, and its text. The text may come from anywhere: each field is checked before it is believed. */
#include "engine/cuda_gemm_picks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static const char *const type_names[] = {[KERNEL_F32] = "f32", [KERNEL_F16] = "f16", [KERNEL_BF16] = "bf16"};
static const char *const after_names[] = {
    [GEMM_ALONE] = "alone",
    [GEMM_BIAS] = "bias",
    [GEMM_BIAS_GELU] = "bias_gelu",
    [GEMM_BIAS_RELU] = "bias_relu",
    [GEMM_BIAS_RESIDUAL] = "bias_residual",
};
enum {
    TYPES = sizeof type_names / sizeof type_names[0],
    AFTERS = sizeof after_names / sizeof after_names[0],
    ALGORITHM_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t),
    HEX_DIGITS = 16, /* of one word */
    WORD_MAX = ALGORITHM_WORDS * HEX_DIGITS,
};

/* The list */

static int compare(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int gemm_key_compare(const struct gemm_key *a, const struct gemm_key *b)
{
    int order = compare(a->shape.type, b->shape.type);
    order = order != 0 ? order : compare(a->shape.after, b->shape.after);
    order = order != 0 ? order : compare(a->shape.outputs, b->shape.outputs);
    order = order != 0 ? order : compare(a->shape.inputs, b->shape.inputs);
    return order != 0 ? order : compare(a->rows, b->rows);
}

/* Where the key is, or would stand. */
static size_t place_of(const struct gemm_picks *picks, const struct gemm_key *key)
{
    size_t low = 0;
    size_t high = picks->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gemm_key_compare(&picks->items[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct gemm_pick *gemm_picks_find(const struct gemm_picks *picks, const struct gemm_key *key)
{
    size_t place = place_of(picks, key);
    bool found = place < picks->count && gemm_key_compare(&picks->items[place].key, key) == 0;
    return found ? &picks->items[place] : NULL;
}

enum status gemm_picks_put(struct gemm_picks *picks, const struct gemm_pick *pick, struct err *err)
{
    size_t place = place_of(picks, &pick->key);
    if (place < picks->count && gemm_key_compare(&picks->items[place].key, &pick->key) == 0) {
        picks->items[place] = *pick;
        return STATUS_OK;
    }
    if (picks->count == picks->room) {
        size_t room = picks->room * 2 + 16;
        struct gemm_pick *items = realloc(picks->items, room * sizeof *items);
        if (items == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %zu algorithms of matrix products", room);
        picks->items = items;
        picks->room = room;
    }
    memmove(&picks->items[place + 1], &picks->items[place], (picks->count - place) * sizeof *picks->items);
    picks->items[place] = *pick;
    picks->count++;
    return STATUS_OK;
}

void gemm_picks_free(struct gemm_picks *picks)
{
    free(picks->items);
    *picks = (struct gemm_picks){0};
}

/* Writing */

static void print_head(const struct cuda_device *device, struct buffer *out)
{
    char name[sizeof device->name];
    size_t i = 0;
    for (; device->name[i] != '\0'; i++)
        name[i] = device->name[i] < ' ' ? '?' : device->name[i];
    name[i] = '\0';
    buffer_format(out, "sluice gemm 1\ndevice %s\ncapability %" PRIu32 "\ndriver %d\ncublaslt %zu\n", name,
                  device->capability, device->driver, device->cublaslt);
}

static void print_pick(const struct gemm_pick *pick, struct buffer *out)
{
    const struct gemm_shape *shape = &pick->key.shape;
    buffer_format(out, "%s %s %" PRIu32 " %" PRIu32 " %" PRIu32 " workspace %" PRIu64 " ns %" PRIu64 " algorithm ",
                  type_names[shape->type], after_names[shape->after], shape->outputs, shape->inputs, pick->key.rows,
                  pick->workspace_bytes, pick->time_ns);
    for (int i = 0; i < ALGORITHM_WORDS; i++)
        buffer_format(out, "%016" PRIx64, pick->algorithm.data[i]);
    buffer_string(out, "\n");
}

void gemm_picks_print(const struct gemm_picks *picks, const struct cuda_device *device, struct buffer *out)
{
    size_t from = out->length;
    print_head(device, out);
    for (size_t i = 0; i < picks->count; i++) {
        if (picks->items[i].time_ns > 0)
            print_pick(&picks->items[i], out);
    }
    if (buffer_ok(out))
        buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data + from, out->length - from, 0));
}

/* Reading */

struct reader {
    const char *at;
    const char *end;
};

/* Whether these very bytes come next; then they are passed. */
static bool take(struct reader *r, const char *text, size_t length)
{
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, text, length) != 0)
        return false;
    r->at += length;
    return true;
}

static bool take_string(struct reader *r, const char *text)
{
    return take(r, text, strlen(text));
}

/* One of some words; none of ours begins with another and ends there. */
static bool take_name(struct reader *r, const char *const names[], uint32_t count, uint32_t *out)
{
    const char *from = r->at;
    for (uint32_t i = 0; i < count; i++) {
        if (take_string(r, names[i]) && take_string(r, " ")) {
            *out = i;
            return true;
        }
        r->at = from;
    }
    return false;
}

/* A number in decimal as we write it, at most `most`. */
static bool take_number(struct reader *r, uint64_t most, uint64_t *out)
{
    const char *from = r->at;
    uint64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        uint64_t digit = (uint64_t)(*r->at - '0');
        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return r->at > from && (*from != '0' || r->at == from + 1);
}

static bool take_size(struct reader *r, uint32_t *out)
{
    uint64_t value;
    if (!take_number(r, INT32_MAX, &value) || value == 0)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool take_hex(struct reader *r, uint64_t *out)
{
    if (r->end - r->at < HEX_DIGITS)
        return false;
    *out = 0;
    for (int i = 0; i < HEX_DIGITS; i++) {
        char c = *r->at++;
        uint64_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint64_t)(c - 'a') + 10;
        else
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

static bool take_pick(struct reader *r, struct gemm_pick *out)
{
    struct gemm_shape *shape = &out->key.shape;
    out->plain = false;
    uint32_t type;
    uint32_t after;
    if (!take_name(r, type_names, TYPES, &type) || !take_name(r, after_names, AFTERS, &after) ||
        !take_size(r, &shape->outputs) || !take_string(r, " ") || !take_size(r, &shape->inputs) ||
        !take_string(r, " ") || !take_size(r, &out->key.rows))
        return false;
    shape->type = (enum kernel_type)type;
    shape->after = (enum gemm_after)after;
    if (!take_string(r, " workspace ") || !take_number(r, INT64_MAX, &out->workspace_bytes) ||
        !take_string(r, " ns ") || !take_number(r, INT64_MAX, &out->time_ns) || out->time_ns == 0 ||
        !take_string(r, " algorithm "))
        return false;
    for (int i = 0; i < ALGORITHM_WORDS; i++) {
        if (!take_hex(r, &out->algorithm.data[i]))
            return false;
    }
    return take_string(r, "\n");
}

/* Cuts the last line off, which must be the checksum of all before it. */
static bool take_checksum(struct reader *r)
{
    static const char word[] = "checksum ";
    size_t line = strlen(word) + HEX_DIGITS + 1;
    if ((size_t)(r->end - r->at) < line)
        return false;
    struct reader last = {r->end - line, r->end};
    uint64_t sum;
    if (!take_string(&last, word) || !take_hex(&last, &sum) || !take_string(&last, "\n"))
        return false;
    r->end -= line;
    return sum == (uint64_t)XXH64(r->at, (size_t)(r->end - r->at), 0);
}

static enum status read_picks(struct reader *r, struct gemm_picks *out, struct err *err)
{
    while (r->at < r->end) {
        struct gemm_pick pick;
        if (!take_pick(r, &pick))
            return err_set(err, STATUS_BAD_INPUT, "line %zu cannot be read", out->count + 6);
        bool follows = out->count == 0 || gemm_key_compare(&out->items[out->count - 1].key, &pick.key) < 0;
        if (!follows || out->count == GEMM_PICKS_MAX)
            return err_set(err, STATUS_BAD_INPUT, "line %zu is out of order, or one too many", out->count + 6);
        TRY(gemm_picks_put(out, &pick, err));
    }
    return STATUS_OK;
}

enum status gemm_picks_parse(const char *text, size_t length, const struct cuda_device *device, struct gemm_picks *out,
                             struct err *err)
{
    struct reader r = {text, text + length};
    if (!take_checksum(&r))
        return err_set(err, STATUS_BAD_INPUT, "it is damaged: the checksum is not right");
    struct buffer head = {0};
    print_head(device, &head);
    bool ok = buffer_ok(&head);
    bool ours = ok && take(&r, head.data, head.length);
    buffer_free(&head);
    if (!ok)
        return err_set(err, STATUS_NO_MEMORY, "no memory to read algorithms of matrix products");
    if (!ours)
        return err_set(err, STATUS_BAD_INPUT, "it is of another device, driver or version");
    enum status status = read_picks(&r, out, err);
    if (status != STATUS_OK)
        gemm_picks_free(out);
    return status;
}
