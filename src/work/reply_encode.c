/* From the outputs of a request's rows to the bytes of its reply. The rows' vectors are cut to what was asked for and
 * moved together, so that every encoding sees one run of floats, row-major. */
#include <math.h>
#include <string.h>

#include "engine/vector.h"
#include "work/reply.h"

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

/* --- Encodings: how much room one takes at most, and how it is written; the end of what was written comes back ------
 */

static size_t json_most(const struct run *run)
{
    return run_count(run) * (REPLY_FLOAT_MAX + 1) + (size_t)run->rows * 3 + 2;
}

/* Shapes: one text is an array, `inputs` are an array of arrays. */
static char *put_json(const struct run *run, char *to)
{
    const float *next = run->floats;
    if (run->nested)
        *to++ = '[';
    for (uint32_t r = 0; r < run->rows; r++) {
        if (r > 0)
            *to++ = ',';
        *to++ = '[';
        for (uint32_t i = 0; i < run->dims; i++) {
            if (i > 0)
                *to++ = ',';
            to += reply_put_float(to, *next++);
        }
        *to++ = ']';
    }
    if (run->nested)
        *to++ = ']';
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
    if (order.low == 1)
        memcpy(to, run->floats, bytes);
    for (size_t i = 0; i < bytes && order.low != 1; i++)
        to[i] = (char)f32_byte(run, i);
    return to + bytes;
}

static size_t f16_most(const struct run *run)
{
    return run_count(run) * HALF_BYTES;
}

/* To the nearest, ties to even. Below 2^-14 the last bit is 2^-24: adding 0.5, whose last bit is that, rounds there. */
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

/* Source: RFC 4648, section 4. */
static char *put_base64(const struct run *run, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = f32_most(run);
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned left = bytes - i < 3 ? (unsigned)(bytes - i) : 3;
        unsigned group = f32_byte(run, i) << 16;
        group |= left > 1 ? f32_byte(run, i + 1) << 8 : 0;
        group |= left > 2 ? f32_byte(run, i + 2) : 0;
        for (unsigned d = 0; d < 4; d++)
            *to++ = d <= left ? digits[group >> (18 - 6 * d) & 63] : '=';
    }
    return to;
}

static const struct {
    size_t (*most)(const struct run *run);
    char *(*put)(const struct run *run, char *to);
} encodings[ENCODING_COUNT] = {
    [ENCODING_JSON] = {json_most, put_json},
    [ENCODING_F32] = {f32_most, put_f32},
    [ENCODING_F16] = {f16_most, put_f16},
    [ENCODING_BASE64] = {base64_most, put_base64},
};

/* --- The vectors -------------------------------------------------------------------------------------------------- */

static struct run run_of(const struct request *request)
{
    return (struct run){.floats = request->row_count > 0 ? request->rows[0].output : NULL,
                        .rows = request->row_count,
                        .dims = request->dims,
                        .nested = request->inputs};
}

/* Cuts and normalises each row where it lies, then moves them together. */
static void finish_vectors(struct request *request)
{
    for (uint32_t r = 0; r < request->row_count; r++) {
        float *vector = request->rows[r].output;
        if (request->normalize)
            vector_normalize(vector, request->dims);
        memmove(request->rows[0].output + (size_t)r * request->dims, vector, request->dims * sizeof(float));
    }
}

static bool check_vectors(struct request *request, const struct run *run)
{
    float limit = request->encoding == ENCODING_F16 ? REPLY_HALF_LIMIT : INFINITY;
    for (uint32_t r = 0; r < run->rows; r++) {
        const float *vector = run->floats + (size_t)r * run->dims;
        if (vector_below(vector, run->dims, limit))
            continue;
        if (vector_finite(vector, run->dims))
            request_fail_row(request, r, CODE_BAD_REQUEST, "encoding: f16 cannot hold a float of this vector");
        else
            request_fail_row(request, r, CODE_NON_FINITE, "the computed vector holds NaN or infinity");
        return false;
    }
    return true;
}

size_t reply_bound(const struct request *request)
{
    struct run run = run_of(request);
    size_t bound = 64;
    while (bound < encodings[request->encoding].most(&run)) /* as a buffer grows */
        bound *= 2;
    return bound;
}

void reply_format(struct request *request)
{
    buffer_free(&request->reply);
    finish_vectors(request);
    struct run run = run_of(request);
    if (!check_vectors(request, &run))
        return;
    char *start = buffer_reserve(&request->reply, encodings[request->encoding].most(&run));
    if (start != NULL)
        request->reply.length = (size_t)(encodings[request->encoding].put(&run, start) - start);
    if (!buffer_ok(&request->reply)) {
        buffer_free(&request->reply);
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the reply");
    }
}
