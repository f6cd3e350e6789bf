/* The weight file's reader: valid files, and every rule of the format broken once. */
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "quoted.h"

static enum status parse(const char *header, uint64_t data_bytes, struct safetensors *file, struct err *err)
{
    return safetensors_parse(quoted(header), strlen(header), data_bytes, "w.safetensors", file, err);
}

static void refuse(const char *header, uint64_t data_bytes, enum status expected, const char *says)
{
    struct safetensors file;
    struct err err = {0};
    enum status status = parse(header, data_bytes, &file, &err);
    safetensors_close(&file);
    if (status != expected || strstr(err.message, says) == NULL || strstr(err.message, "w.safetensors") == NULL) {
        fail_msg("header %s: %s: \"%s\", expected \"%s\"", header, status_name(status), err.message, says);
    }
}

/* Writes a file with a given header length field; returns its path in a static buffer. */
static const char *write_file(uint64_t claimed, const char *header, size_t data_bytes)
{
    static char path[] = "/tmp/sluice-safetensors-XXXXXX";
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *out = fdopen(fd, "wb");
    for (int i = 0; i < 8; i++) { fputc((int)(claimed >> 8 * i & 0xFF), out); }
    fputs(quoted(header), out);
    for (size_t i = 0; i < data_bytes; i++) { fputc((int)(i & 0xFF), out); }
    assert_int_equal(fclose(out), 0);
    return path;
}

static enum status open_file(uint64_t claimed, const char *header, size_t data_bytes, struct safetensors *file,
                             struct err *err)
{
    const char *path = write_file(claimed, header, data_bytes);
    enum status status = safetensors_open(path, "w.safetensors", file, err);
    unlink(path);
    return status;
}

TEST(reads_names_shapes_and_bytes)
{
    const char *header = "{'__metadata__':{'format':'pt'},"
                         "'b':{'dtype':'I64','shape':[1,2],'data_offsets':[12,28]},"
                         "'a':{'dtype':'F16','shape':[2,3],'data_offsets':[0,12]}}   ";
    struct safetensors file;
    struct err err;
    assert_int_equal(open_file(strlen(header), header, 28, &file, &err), STATUS_OK);
    assert_int_equal(file.count, 2);
    assert_string_equal(file.entries[0].name, "a");
    assert_int_equal(file.entries[0].dtype, SAFETENSORS_F16);
    assert_int_equal(file.entries[0].rank, 2);
    assert_int_equal(file.entries[0].shape[0], 2);
    assert_int_equal(file.entries[0].shape[1], 3);
    assert_int_equal(file.entries[0].elements, 6);
    assert_int_equal(file.entries[1].dtype, SAFETENSORS_OTHER);
    assert_string_equal(file.entries[1].dtype_name, "I64");
    assert_int_equal(file.data_bytes, 28);
    for (int i = 0; i < 28; i++) { assert_int_equal(file.data[i], i); }
    safetensors_close(&file);
}

TEST(reads_scalars_and_empty_tensors)
{
    struct safetensors file;
    struct err err;
    assert_int_equal(parse("{'s':{'dtype':'F32','shape':[],'data_offsets':[0,4]},"
                           "'e':{'dtype':'F32','shape':[0,7],'data_offsets':[4,4]}}",
                           4, &file, &err),
                     STATUS_OK);
    assert_int_equal(file.entries[0].elements, 1);
    assert_int_equal(file.entries[1].elements, 0);
    safetensors_close(&file);
    assert_int_equal(parse("{}", 0, &file, &err), STATUS_OK);
    assert_int_equal(file.count, 0);
    safetensors_close(&file);
}

TEST(refuses_a_broken_header)
{
    static const struct {
        const char *header;
        uint64_t data_bytes;
        enum status status;
        const char *says;
    } cases[] = {
        {"", 0, STATUS_BAD_INPUT, "not valid JSON"},
        {"[]", 0, STATUS_BAD_INPUT, "not a JSON object"},
        {"{} x", 0, STATUS_BAD_INPUT, "more text after"},
        {"{'a':1}", 0, STATUS_BAD_INPUT, "tensor a is not an object"},
        {"{'\xff':{}}", 0, STATUS_BAD_INPUT, "UTF-8"},
        {"{'a\\u0000b':{}}", 0, STATUS_BAD_INPUT, "NUL"},
        {"{'__metadata__':{'x':[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}", 0,
         STATUS_BAD_INPUT, "nested deeper"},
        {"{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},'a':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}", 2,
         STATUS_BAD_INPUT, "a stands twice"},
        {"{'a':{'shape':[1],'data_offsets':[0,4]}}", 4, STATUS_BAD_INPUT, "tensor a has no dtype"},
        {"{'a':{'dtype':7,'shape':[1],'data_offsets':[0,4]}}", 4, STATUS_BAD_INPUT, "tensor a has no dtype"},
        {"{'a':{'dtype':'Q4_0','shape':[1],'data_offsets':[0,4]}}", 4, STATUS_UNSUPPORTED, "Q4_0"},
        /* 2^61 elements of 8 bytes are 2^64 bytes, 0 in wrapped arithmetic. */
        {"{'a':{'dtype':'F64','shape':[2305843009213693952],'data_offsets':[0,0]}}", 0, STATUS_BAD_INPUT,
         "impossible shape"},
        {"{'a':{'dtype':'F64','shape':[2147483648,1073741824],'data_offsets':[0,0]}}", 0, STATUS_BAD_INPUT,
         "do not fill"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuse(cases[i].header, cases[i].data_bytes, cases[i].status, cases[i].says);
    }
}

TEST(refuses_shapes)
{
    static const char *const shapes[] = {"null",
                                         "3",
                                         "[-1]",
                                         "[1.5]",
                                         "['1']",
                                         "[1e400]",
                                         "[1,1,1,1,1,1,1,1,1]",
                                         "[9007199254740993]",
                                         "[4294967296,4294967296]",
                                         "[9007199254740992,9007199254740992,0]"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char header[256];
        snprintf(header, sizeof header, "{'a':{'dtype':'F32','shape':%s,'data_offsets':[0,0]}}", shapes[i]);
        refuse(header, 0, STATUS_BAD_INPUT, "shape");
    }
}

TEST(refuses_offsets)
{
    static const struct {
        const char *offsets, *says;
    } cases[] = {
        {"null", "two whole numbers"},
        {"[0]", "two whole numbers"},
        {"[0,4,8]", "two whole numbers"},
        {"[-4,0]", "two whole numbers"},
        {"[0,4.5]", "two whole numbers"},
        {"['0','4']", "two whole numbers"},
        {"[4,0]", "end before they begin"},
        {"[4,8]", "truncated: it has 4 bytes of tensors, and its header says 8; download it again"},
        {"[0,9007199254740992]", "do not fill"},
        {"[0,3]", "do not fill"},
        {"[0,18446744073709551616]", "two whole numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[256];
        snprintf(header, sizeof header, "{'a':{'dtype':'F32','shape':[1],'data_offsets':%s}}", cases[i].offsets);
        refuse(header, 4, STATUS_BAD_INPUT, cases[i].says);
    }
}

TEST(refuses_overlaps_and_gaps)
{
    static const struct {
        int offsets[4];
        uint64_t bytes;
        const char *says;
    } cases[] = {
        {{0, 4, 0, 4}, 4, "overlaps"},
        {{0, 4, 3, 7}, 7, "overlaps"},
        {{3, 7, 0, 4}, 7, "overlaps"},
        {{0, 4, 5, 9}, 9, "gap of bytes before tensor b"},
        {{1, 5, 5, 9}, 9, "gap of bytes before tensor a"},
        {{0, 4, 4, 8}, 9, "1 bytes behind the last"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[256];
        const int *at = cases[i].offsets;
        snprintf(header, sizeof header,
                 "{'a':{'dtype':'U8','shape':[4],'data_offsets':[%d,%d]},"
                 "'b':{'dtype':'U8','shape':[4],'data_offsets':[%d,%d]}}",
                 at[0], at[1], at[2], at[3]);
        refuse(header, cases[i].bytes, STATUS_BAD_INPUT, cases[i].says);
    }
}

TEST(refuses_files_shorter_than_they_say)
{
    static const char header[] = "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}";
    static const struct {
        uint64_t claimed;
        size_t data_bytes;
        const char *says;
    } cases[] = {
        {sizeof header - 1, 3, "is truncated: it has 3 bytes of tensors, and its header says 4"},
        {sizeof header - 1 + 5, 4, "its header alone is longer"},
        {UINT64_MAX, 4, "above the limit"},
        {SAFETENSORS_MAX_HEADER + 1, 4, "above the limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct safetensors file;
        struct err err = {0};
        assert_int_equal(open_file(cases[i].claimed, header, cases[i].data_bytes, &file, &err), STATUS_BAD_INPUT);
        if (!strstr(err.message, cases[i].says)) { fail_msg("%s: not %s", err.message, cases[i].says); }
        safetensors_close(&file);
    }
}

TEST(refuses_what_is_not_a_file)
{
    struct safetensors file;
    struct err err;
    assert_int_equal(safetensors_open("/tmp/no/such/file", "x", &file, &err), STATUS_NOT_FOUND);
    safetensors_close(&file);
    assert_int_equal(safetensors_open("/tmp", "x", &file, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "not a regular file"));
    safetensors_close(&file);
    assert_int_equal(safetensors_open("/dev/null", "x", &file, &err), STATUS_BAD_INPUT);
    safetensors_close(&file);
    const char *path = write_file(0, "", 0);
    assert_int_equal(truncate(path, 7), 0);
    assert_int_equal(safetensors_open(path, "x", &file, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "too few"));
    safetensors_close(&file);
    unlink(path);
}

/* Whichever byte is wrong, the answer is an error or a file whose tensors are inside its data. */
TEST(survives_every_byte_changed)
{
    char header[] = "{\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[12,16]}}";
    size_t accepted = 0;
    for (size_t i = 0; i + 1 < sizeof header; i++) {
        char kept = header[i];
        for (int byte = 1; byte < 256; byte++) {
            header[i] = (char)byte;
            struct safetensors file;
            struct err err;
            if (safetensors_parse(header, strlen(header), 16, "w", &file, &err) == STATUS_OK) {
                accepted++;
                for (size_t e = 0; e < file.count; e++) {
                    assert_true(file.entries[e].begin <= file.entries[e].end && file.entries[e].end <= 16);
                }
            }
            safetensors_close(&file);
        }
        header[i] = kept;
    }
    assert_true(accepted > sizeof header); /* the unchanged byte, and other letters in names, are accepted */
}
