/* Encodings of vectors in replies: how each one is written, how long it can be, and how it is read back. */
#include "schedule/encodings.h"

#include <math.h>
#include <string.h>

#include "base/float_text.h"
#include "base/half.h"
#include "model/model.h"

enum { HALF_BYTES = 2 };

static size_t run_count(const struct vector_run *run)
{
    return (size_t)run->rows * run->dims;
}

/* --- the most room that one takes, and how it is written; `put` returns the end of what it wrote --- */

static size_t json_room(const struct vector_run *run)
{
    return run_count(run) * (FLOAT_TEXT_MAX + 1) + (size_t)run->rows * 3 + 2;
}

/* Shapes: one text is an array, `inputs` are an array of arrays. */
static char *put_json_vectors(const struct vector_run *run, char *to)
{
    if (run->nested) { *to++ = '['; }
    for (uint32_t r = 0; r < run->rows; r++) {
        if (r > 0) { *to++ = ','; }
        to = float_list_put(to, run->floats + (size_t)r * run->dims, run->dims);
    }
    if (run->nested) { *to++ = ']'; }
    return to;
}

static size_t f32_room(const struct vector_run *run)
{
    return run_count(run) * sizeof(float);
}

/* Byte `i` of the run as little-endian f32. */
static unsigned f32_byte(const struct vector_run *run, size_t i)
{
    uint32_t bits;
    memcpy(&bits, &run->floats[i / sizeof(float)], sizeof(bits));
    return bits >> 8 * (i % sizeof(float)) & 255;
}

static char *put_f32(const struct vector_run *run, char *to)
{
    static const union {
        uint16_t number;
        unsigned char low;
    } order = {1};
    size_t bytes = f32_room(run);
    if (order.low == 1) { memcpy(to, run->floats, bytes); }
    for (size_t i = 0; i < bytes && order.low != 1; i++) { to[i] = (char)f32_byte(run, i); }
    return to + bytes;
}

static size_t f16_room(const struct vector_run *run)
{
    return run_count(run) * HALF_BYTES;
}

static char *put_f16(const struct vector_run *run, char *to)
{
    for (size_t i = 0; i < run_count(run); i++) {
        uint16_t half = half_from_float(run->floats[i]);
        *to++ = (char)(half & 255);
        *to++ = (char)(half >> 8);
    }
    return to;
}

static size_t base64_room(const struct vector_run *run)
{
    return (f32_room(run) + 2) / 3 * 4;
}

/* Base64 of the bytes of f32. Source: RFC 4648, section 4. */
static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *put_base64(const struct vector_run *run, char *to)
{
    size_t bytes = f32_room(run);
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned left = bytes - i < 3 ? (unsigned)(bytes - i) : 3;
        unsigned group = f32_byte(run, i) << 16;
        group |= left > 1 ? f32_byte(run, i + 1) << 8 : 0;
        group |= left > 2 ? f32_byte(run, i + 2) : 0;
        for (unsigned d = 0; d < 4; d++) { *to++ = d <= left ? base64_digits[group >> (18 - 6 * d) & 63] : '='; }
    }
    return to;
}

static size_t int8_room(const struct vector_run *run)
{
    return run_count(run);
}

/* Works like quantize_embeddings of sentence-transformers, with the same range for every number of a vector of length
 * 1: eight times the root of their mean square in both directions. */
static char *put_int8(const struct vector_run *run, char *to)
{
    float range = fminf(1, 8 / sqrtf((float)run->dims)), step = (range + range) / 255;
    for (size_t i = 0; i < run_count(run); i++) {
        float number = floorf((run->floats[i] + range) / step);
        *to++ = (char)(int8_t)((int)fminf(fmaxf(number, 0), 255) - 128);
    }
    return to;
}

static size_t ubinary_room(const struct vector_run *run)
{
    return (size_t)run->rows * ((run->dims + 7) / 8);
}

/* Writes a bit for each number, 1 above zero, the highest bit first; a row ends at a whole byte. */
static char *put_ubinary(const struct vector_run *run, char *to)
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

/* --- how they are read back --- */

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
    size_t (*room)(const struct vector_run *run);
    char *(*put)(const struct vector_run *run, char *to);
    bool (*read)(const char *bytes, size_t length, struct buffer *floats);
} encodings[ENCODING_COUNT] = {
    [ENCODING_JSON] = {json_room, put_json_vectors, NULL},
    [ENCODING_F32] = {f32_room, put_f32, read_f32},
    [ENCODING_F16] = {f16_room, put_f16, read_f16},
    [ENCODING_BASE64] = {base64_room, put_base64, read_base64},
    [ENCODING_INT8] = {int8_room, put_int8, read_int8},
    [ENCODING_UBINARY] = {ubinary_room, put_ubinary, read_ubinary},
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

bool encoding_read(const char *encoding, const char *bytes, size_t length, struct buffer *floats)
{
    for (int i = 0; i < ENCODING_COUNT; i++) {
        if (strcmp(encoding, encoding_name((enum encoding)i)) == 0) {
            return encodings[i].read && encodings[i].read(bytes, length, floats);
        }
    }
    return false;
}

size_t encoding_room(enum encoding encoding, const struct vector_run *run)
{
    return encodings[encoding].room(run);
}

char *encoding_put(enum encoding encoding, const struct vector_run *run, char *to)
{
    return encodings[encoding].put(run, to);
}
