/* Four parts: floats as text, the table of encodings, the table of the contents of replies, and from a request's rows
 * to its reply.
 *
 * Floats as text: JSON is the default encoding and the most expensive step of a reply, hence our own formatter.
 *
 * A float gets the fewest digits that still read back to it. Every decimal within its reach, half the distance to its
 * neighbours, reads back to it. A power of ten brings the reach into (0.5, 5]. There the nearest integer always reads
 * back, the nearest one that ends in 0 may, and no rounder number needs to be tried. Float, reach and most powers are
 * exact in double and the products are off by less than 1e-7, so the reach is reduced by as much; that also keeps the
 * text away from the middle between two floats, where readers that go through double would err. */
#include "schedule/reply.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/vector.h"
#include "model/model.h"

enum { DIGITS = 9, POWER_LEAST = -31, POWER_MOST = 46 };

/* Powers of ten, from POWER_LEAST on. */
static const double powers[POWER_MOST - POWER_LEAST + 1] = {
    1e-31, 1e-30, 1e-29, 1e-28, 1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16,
    1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0,
    1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,  1e13,  1e14,  1e15,  1e16,
    1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,  1e26,  1e27,  1e28,  1e29,  1e30,  1e31,  1e32,
    1e33,  1e34,  1e35,  1e36,  1e37,  1e38,  1e39,  1e40,  1e41,  1e42,  1e43,  1e44,  1e45,  1e46,
};

/* A number of at most nine digits, `places` of them after the point. */
struct decimal {
    uint32_t digits;
    uint32_t ends_in_zero; /* 0 or 1 */
    int places;
};

/* Returns the shortest decimal of a positive finite value. */
static struct decimal shortest(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits--;
    float below; /* at least as near as the next float above */
    memcpy(&below, &bits, sizeof(below));
    double reach = ((double)value - (double)below) / 2; /* a power of two */
    uint64_t reach_bits;
    memcpy(&reach_bits, &reach, sizeof(reach_bits));
    int binary = (int)(reach_bits >> 52) - 1023;
    int places = ((-1 - binary) * 1233 + (64 << 12)) / 4096 - 63; /* floor(log10(0.5 / reach)) + 1 */
    double power = powers[places - POWER_LEAST], scaled = value * power;
    uint32_t nearest = (uint32_t)(scaled + 0.5), ten = (uint32_t)(scaled * 0.1 + 0.5) * 10;
    uint32_t take_ten = fabs(ten - scaled) < reach * power - 1e-7; /* unpredictable, hence no branch */
    return (struct decimal){nearest ^ ((nearest ^ ten) & -take_ten), take_ten, places};
}

/* Writes nine digits, zero-padded in front, and returns how many remain without trailing zeros. Eight of them are split
 * within one word: into halves, quarters and single digits. */
static int put_digits(char *to, struct decimal decimal)
{
    uint32_t first = decimal.digits / 100000000, low = decimal.digits % 100000000;
    uint64_t split = low / 10000 | (uint64_t)(low % 10000) << 32;
    uint64_t hundreds = (split * 10486 >> 20) & 0x7f0000007full;
    split = hundreds | (split - 100 * hundreds) << 16;
    uint64_t tens = (split * 103 >> 10) & 0xf000f000f000full;
    split = tens | (split - 10 * tens) << 8;
    uint64_t text = split | 0x3030303030303030ull;
    const char eight[8] = {(char)text,         (char)(text >> 8),  (char)(text >> 16), (char)(text >> 24),
                           (char)(text >> 32), (char)(text >> 40), (char)(text >> 48), (char)(text >> 56)};
    to[0] = (char)('0' + first);
    memcpy(to + 1, eight, sizeof(eight));
    int count = DIGITS - (int)decimal.ends_in_zero;
    if (split >> 48 == 0) {
        while (count > 1 && to[count - 1] == '0') { count--; }
    }
    return count;
}

/* Writes a value below one, as nearly all floats of a normalised vector are: the digits go straight to their place. */
static char *put_fraction(char *to, struct decimal decimal)
{
    memset(to, '0', 8);
    char *digits = to + 2 + decimal.places - DIGITS; /* with eight places, the point replaces their leading zero */
    char *end = digits + put_digits(digits, decimal);
    to[1] = '.';
    return end;
}

static char *put_scientific(char *to, const char *digits, int count, int exponent)
{
    *to++ = digits[0];
    if (count > 1) {
        *to++ = '.';
        memcpy(to, digits + 1, (size_t)count - 1);
        to += count - 1;
    }
    unsigned size = (unsigned)(exponent < 0 ? -exponent : exponent);
    *to++ = 'e';
    *to++ = exponent < 0 ? '-' : '+';
    *to++ = (char)('0' + size / 10 % 10);
    *to++ = (char)('0' + size % 10);
    return to;
}

static char *put_plain(char *to, const char *digits, int count, int exponent)
{
    int whole = exponent + 1;
    memcpy(to, digits, DIGITS); /* trailing zeros are included: 100 keeps its two */
    if (count <= whole) { return to + whole; }
    to[whole] = '.';
    memcpy(to + whole + 1, digits + whole, (size_t)(count - whole));
    return to + count + 1;
}

/* Writes any other value, which is d.dddddddd * 10^exponent. */
static char *put_other(char *to, struct decimal decimal)
{
    char digits[DIGITS];
    int shift = 0;
    for (; decimal.digits < 100000000; decimal.digits *= 10) { shift++; }
    decimal.ends_in_zero |= shift > 0;
    int count = put_digits(digits, decimal);
    int exponent = DIGITS - 1 - shift - decimal.places;
    bool plain = exponent >= 0 && exponent < DIGITS;
    return plain ? put_plain(to, digits, count, exponent) : put_scientific(to, digits, count, exponent);
}

size_t reply_put_float(char *to, float value)
{
    char *at = to + (signbit(value) != 0);
    *to = '-';
    value = fabsf(value);
    if (value == 0) {
        memcpy(at, "0.0", 3); /* "-0" would be read as an integer and lose its sign */
        return at == to ? 1 : 4;
    }
    struct decimal decimal = shortest(value);
    at = value < 1 && value >= 1e-5f ? put_fraction(at, decimal) : put_other(at, decimal);
    return (size_t)(at - to);
}

/* --- From the outputs of a request's rows to the bytes of its reply. The vectors are cut to the asked length and moved
 * together, so that every encoding sees one run of floats, row-major --- */

enum { HALF_BYTES = 2 };

/* The floats of the reply. */
struct run {
    const float *floats; /* [rows, dims] */
    uint32_t rows, dims;
    bool nested; /* json: an array of arrays */
};

static size_t run_count(const struct run *run)
{
    return (size_t)run->rows * run->dims;
}

/* --- encodings: the most room that one takes, and how it is written; `put` returns the end of what it wrote --- */

static size_t json_most(const struct run *run)
{
    return run_count(run) * (REPLY_FLOAT_MAX + 1) + (size_t)run->rows * 3 + 2;
}

/* Shapes: one text is an array, `inputs` are an array of arrays. */
static char *put_json(const struct run *run, char *to)
{
    const float *next = run->floats;
    if (run->nested) { *to++ = '['; }
    for (uint32_t r = 0; r < run->rows; r++) {
        if (r > 0) { *to++ = ','; }
        *to++ = '[';
        for (uint32_t i = 0; i < run->dims; i++) {
            if (i > 0) { *to++ = ','; }
            to += reply_put_float(to, *next++);
        }
        *to++ = ']';
    }
    if (run->nested) { *to++ = ']'; }
    return to;
}

static size_t f32_most(const struct run *run)
{
    return run_count(run) * sizeof(float);
}

/* Byte `i` of the run as little-endian f32. */
static unsigned f32_byte(const struct run *run, size_t i)
{
    uint32_t bits;
    memcpy(&bits, &run->floats[i / sizeof(float)], sizeof(bits));
    return bits >> 8 * (i % sizeof(float)) & 255;
}

static char *put_f32(const struct run *run, char *to)
{
    static const union {
        uint16_t number;
        unsigned char low;
    } order = {1};
    size_t bytes = f32_most(run);
    if (order.low == 1) { memcpy(to, run->floats, bytes); }
    for (size_t i = 0; i < bytes && order.low != 1; i++) { to[i] = (char)f32_byte(run, i); }
    return to + bytes;
}

static size_t f16_most(const struct run *run)
{
    return run_count(run) * HALF_BYTES;
}

/* Rounds to the nearest, ties to even. Below 2^-14 the last bit of f16 is 2^-24: adding 0.5, whose last bit is that in
 * f32, rounds there. */
uint16_t reply_half(float value)
{
    uint32_t bits, sign;
    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits < 0x38800000) {
        float shifted;
        memcpy(&shifted, &bits, sizeof(shifted));
        shifted += 0.5f;
        memcpy(&bits, &shifted, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - ((127 - 15) << 23)) >> 13);
}

static char *put_f16(const struct run *run, char *to)
{
    for (size_t i = 0; i < run_count(run); i++) {
        uint16_t half = reply_half(run->floats[i]);
        *to++ = (char)(half & 255);
        *to++ = (char)(half >> 8);
    }
    return to;
}

static size_t base64_most(const struct run *run)
{
    return (f32_most(run) + 2) / 3 * 4;
}

/* Base64 of the bytes of f32. Source: RFC 4648, section 4. */
static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *put_base64(const struct run *run, char *to)
{
    size_t bytes = f32_most(run);
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned left = bytes - i < 3 ? (unsigned)(bytes - i) : 3;
        unsigned group = f32_byte(run, i) << 16;
        group |= left > 1 ? f32_byte(run, i + 1) << 8 : 0;
        group |= left > 2 ? f32_byte(run, i + 2) : 0;
        for (unsigned d = 0; d < 4; d++) { *to++ = d <= left ? base64_digits[group >> (18 - 6 * d) & 63] : '='; }
    }
    return to;
}

static size_t int8_most(const struct run *run)
{
    return run_count(run);
}

/* Works like quantize_embeddings of sentence-transformers, with the same range for every number of a vector of length
 * 1: eight times the root of their mean square in both directions. */
static char *put_int8(const struct run *run, char *to)
{
    float range = fminf(1, 8 / sqrtf((float)run->dims)), step = (range + range) / 255;
    for (size_t i = 0; i < run_count(run); i++) {
        float number = floorf((run->floats[i] + range) / step);
        *to++ = (char)(int8_t)((int)fminf(fmaxf(number, 0), 255) - 128);
    }
    return to;
}

static size_t ubinary_most(const struct run *run)
{
    return (size_t)run->rows * ((run->dims + 7) / 8);
}

/* Writes a bit for each number, 1 above zero, the highest bit first; a row ends at a whole byte. */
static char *put_ubinary(const struct run *run, char *to)
{
    for (uint32_t r = 0; r < run->rows; r++) {
        const float *row = run->floats + (size_t)r * run->dims;
        for (uint32_t i = 0; i < run->dims; i += 8) {
            unsigned byte = 0;
            for (uint32_t bit = 0; bit < 8 && i + bit < run->dims; bit++) {
                byte |= (row[i + bit] > 0 ? 0x80u : 0) >> bit;
            }
            *to++ = (char)byte;
        }
    }
    return to;
}

/* --- encodings: how they are read back --- */

static bool read_f32(const char *bytes, size_t length, struct buffer *floats)
{
    buffer_append(floats, bytes, length);
    return length % sizeof(float) == 0;
}

static bool read_f16(const char *bytes, size_t length, struct buffer *floats)
{
    struct tensor halves = {.dtype = DTYPE_F16, .rank = 1, .data = bytes, .elements = length / HALF_BYTES};
    char *to = buffer_reserve(floats, halves.elements * sizeof(float));
    if (to) {
        tensor_read_f32(&halves, 0, halves.elements, (float *)(void *)to);
        floats->length += halves.elements * sizeof(float);
    }
    return length % HALF_BYTES == 0;
}

/* False for a letter outside the alphabet or wrong padding. */
static bool read_base64(const char *bytes, size_t length, struct buffer *floats)
{
    size_t digits = length, start = floats->length;
    uint32_t bits = 0, count = 0;
    for (int padding = 0; padding < 2 && digits > 0 && bytes[digits - 1] == '='; padding++) { digits--; }
    for (size_t i = 0; i < digits; i++) {
        const char *at = bytes[i] == '\0' ? NULL : strchr(base64_digits, bytes[i]);
        if (!at) { return false; }
        bits = bits << 6 | (uint32_t)(at - base64_digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            unsigned char byte = (unsigned char)(bits >> count);
            buffer_append(floats, &byte, 1);
        }
    }
    return length % 4 == 0 && (floats->length - start) % sizeof(float) == 0;
}

/* Whole numbers stay whole numbers. */
static bool read_int8(const char *bytes, size_t length, struct buffer *floats)
{
    for (size_t i = 0; i < length; i++) {
        float number = (int8_t)bytes[i];
        buffer_append(floats, &number, sizeof(number));
    }
    return true;
}

static bool read_ubinary(const char *bytes, size_t length, struct buffer *floats)
{
    for (size_t i = 0; i < length; i++) {
        float number = (unsigned char)bytes[i];
        buffer_append(floats, &number, sizeof(number));
    }
    return true;
}

/* The table. To add an encoding: a row here, its word, and its member in enum encoding. */
static const struct {
    size_t (*most)(const struct run *run);
    char *(*put)(const struct run *run, char *to);
    bool (*read)(const char *bytes, size_t length, struct buffer *floats);
} encodings[ENCODING_COUNT] = {
    [ENCODING_JSON] = {json_most, put_json, NULL},      [ENCODING_F32] = {f32_most, put_f32, read_f32},
    [ENCODING_F16] = {f16_most, put_f16, read_f16},     [ENCODING_BASE64] = {base64_most, put_base64, read_base64},
    [ENCODING_INT8] = {int8_most, put_int8, read_int8}, [ENCODING_UBINARY] = {ubinary_most, put_ubinary, read_ubinary},
};

const char *const encoding_words[ENCODING_COUNT + 2] = {"default",
                                                        [1 + ENCODING_JSON] = "json",
                                                        [1 + ENCODING_F32] = "f32",
                                                        [1 + ENCODING_F16] = "f16",
                                                        [1 + ENCODING_BASE64] = "base64",
                                                        [1 + ENCODING_INT8] = "int8",
                                                        [1 + ENCODING_UBINARY] = "ubinary"};

const char *encoding_name(enum encoding encoding)
{
    return encoding_words[1 + encoding];
}

bool reply_read(const char *encoding, const char *bytes, size_t length, struct buffer *floats)
{
    for (int i = 0; i < ENCODING_COUNT; i++) {
        if (strcmp(encoding, encoding_name((enum encoding)i)) == 0) {
            return encodings[i].read && encodings[i].read(bytes, length, floats);
        }
    }
    return false;
}

/* --- The JSON of a text and its score --- */

/* An output with its index. */
struct scored {
    uint32_t index;
    float score;
};

static int best_first(const void *left, const void *right)
{
    const struct scored *a = left, *b = right;
    if (a->score != b->score) { return a->score > b->score ? -1 : 1; }
    return a->index < b->index ? -1 : 1;
}

/* Sorts scores, best first. Owns: the caller frees it. NULL when memory ran out; `to` is then broken, as if it could
 * not grow. */
static struct scored *sort_scores(const float *scores, uint32_t count, struct buffer *to)
{
    struct scored *sorted = malloc(count * sizeof *sorted);
    for (uint32_t i = 0; sorted && i < count; i++) { sorted[i] = (struct scored){i, scores[i]}; }
    if (sorted) { qsort(sorted, count, sizeof *sorted, best_first); }
    to->broken |= !sorted;
    return sorted;
}

static void put_float(struct buffer *to, float value)
{
    char text[REPLY_FLOAT_MAX];
    buffer_append(to, text, reply_put_float(text, value));
}

void reply_put_score(struct buffer *to, uint64_t index, float score)
{
    buffer_format(to, "{\"index\":%" PRIu64 ",\"score\":", index);
    put_float(to, score);
    buffer_string(to, "}");
}

void reply_put_labels(struct buffer *to, const struct model_head *head, const float *scores)
{
    struct scored *sorted = sort_scores(scores, head->labels, to);
    for (uint32_t i = 0; sorted && i < head->labels; i++) {
        const char *name = head->names[sorted[i].index];
        buffer_string(to, i == 0 ? "[{\"label\":" : ",{\"label\":");
        buffer_json_string(to, name, strlen(name));
        buffer_string(to, ",\"score\":");
        put_float(to, sorted[i].score);
        buffer_string(to, "}");
    }
    buffer_string(to, "]");
    free(sorted);
}

/* --- The contents of a reply: the most room that one takes, and how it is written --- */

/* Scores are one run, in the order of the documents. */
static struct run run_of(const struct request *request)
{
    bool scores = request->task == TASK_RERANK;
    return (struct run){.floats = request->row_count > 0 ? request->rows[0].output : NULL,
                        .rows = scores ? 1 : request->row_count,
                        .dims = scores ? request->row_count : request->output.dims,
                        .nested = request->inputs && !scores};
}

static size_t floats_most(const struct request *request)
{
    struct run run = run_of(request);
    return encodings[request->output.encoding].most(&run);
}

static void put_floats(struct buffer *to, const struct request *request)
{
    struct run run = run_of(request);
    char *start = buffer_reserve(to, floats_most(request));
    if (start) { to->length = (size_t)(encodings[request->output.encoding].put(&run, start) - start); }
}

static uint32_t top_count(const struct request *request)
{
    return request->output.top_n < request->row_count ? request->output.top_n : request->row_count;
}

static size_t top_most(const struct request *request)
{
    return 4 + top_count(request) * (sizeof "{'index':4294967295,'score':}," + REPLY_FLOAT_MAX);
}

static void put_top(struct buffer *to, const struct request *request)
{
    struct scored *sorted = sort_scores(request->rows[0].output, request->row_count, to);
    buffer_string(to, "[");
    for (uint32_t i = 0; sorted && i < top_count(request); i++) {
        if (i > 0) { buffer_string(to, ","); }
        reply_put_score(to, sorted[i].index, sorted[i].score);
    }
    buffer_string(to, "]");
    free(sorted);
}

static size_t labels_most(const struct request *request)
{
    enum { ESCAPE = 6 }; /* \u0001 */
    size_t most = 4;
    for (uint32_t i = 0; i < request->head->labels; i++) {
        most += ESCAPE * strlen(request->head->names[i]) + sizeof "{'label':'','score':}," + REPLY_FLOAT_MAX;
    }
    return 4 + most * request->row_count;
}

/* Shapes: one text is an array, `inputs` are an array of arrays. */
static void put_labels(struct buffer *to, const struct request *request)
{
    if (request->inputs) { buffer_string(to, "["); }
    for (uint32_t r = 0; r < request->row_count; r++) {
        if (r > 0) { buffer_string(to, ","); }
        reply_put_labels(to, request->head, request->rows[0].output + (size_t)r * request->head->labels);
    }
    if (request->inputs) { buffer_string(to, "]"); }
}

/* By task; the last is for TASK_RERANK with top_n. To add a content of replies: a row, and its two functions. */
static const struct form {
    const char *field; /* of the reply */
    size_t (*most)(const struct request *request);
    void (*put)(struct buffer *to, const struct request *request);
} forms[TASK_COUNT + 1] = {
    [TASK_EMBED] = {"embedding", floats_most, put_floats},
    [TASK_RERANK] = {"scores", floats_most, put_floats},
    [TASK_CLASSIFY] = {"labels", labels_most, put_labels},
    [TASK_COUNT] = {"top", top_most, put_top},
};

static const struct form *form_of(const struct request *request)
{
    return &forms[request->output.top_n > 0 ? TASK_COUNT : request->task];
}

const char *reply_field(const struct request *request)
{
    return form_of(request)->field;
}

size_t reply_most(const struct request *request)
{
    return form_of(request)->most(request);
}

size_t reply_bound(const struct request *request)
{
    size_t bound = 64, most = reply_most(request);
    while (bound < most) { bound *= 2; } /* as a buffer grows */
    return bound;
}

/* --- From outputs to the reply --- */

/* Finishes the output of a row in place. */
static void finish_output(const struct request *request, float *output)
{
    if (request->task != TASK_EMBED) {
        enum scoring scoring = request->task == TASK_RERANK ? request->head->score : request->head->classify;
        vector_score(output, request->dim, request->output.raw ? SCORING_NONE : scoring);
    } else if (request->output.normalize) {
        vector_normalize(output, request->output.dims);
    }
}

/* Finishes each row's output, cuts it, and moves all of them together. */
static void finish_outputs(struct request *request)
{
    for (uint32_t r = 0; r < request->row_count; r++) {
        float *output = request->rows[r].output;
        finish_output(request, output);
        memmove(request->rows[0].output + (size_t)r * request->output.dims, output,
                request->output.dims * sizeof(float));
    }
}

static bool check_outputs(struct request *request)
{
    float limit = request->output.encoding == ENCODING_F16 ? REPLY_HALF_LIMIT : INFINITY;
    for (uint32_t r = 0; r < request->row_count; r++) {
        const float *output = request->rows[0].output + (size_t)r * request->output.dims;
        if (vector_below(output, request->output.dims, limit)) { continue; }
        if (vector_finite(output, request->output.dims)) {
            request_fail_row(request, r, CODE_BAD_REQUEST, "encoding: f16 cannot hold a float of this reply");
        } else {
            request_fail_row(request, r, CODE_NON_FINITE, "the computed %s holds NaN or infinity",
                             request->task == TASK_EMBED ? "vector" : "score");
        }
        return false;
    }
    return true;
}

void reply_format(struct request *request)
{
    buffer_free(&request->output.reply);
    finish_outputs(request);
    if (!check_outputs(request)) { return; }
    form_of(request)->put(&request->output.reply, request);
    if (!buffer_ok(&request->output.reply)) {
        buffer_free(&request->output.reply);
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the reply");
    }
}
