/* A byte-level BPE tokenizer without merges: the tokens are the 256 bytes, by their values, and special ones. */
#ifndef TESTS_BYTE_TOKENIZER_H
#define TESTS_BYTE_TOKENIZER_H

#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "harness.h"
#include "tokenizer/tokenizer.h"

/* Writes the character that stands for a byte in the files of byte-level BPE. */
static inline size_t byte_tokenizer_letter(char *to, unsigned byte)
{
    unsigned others = 0;
    for (unsigned b = 0; b < byte; b++) { others += !((b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD)); }
    bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    return utf8_put(to, visible ? byte : 256 + others);
}

/* Opens one whose special tokens, a list that ends with NULL, are numbered from 256. */
static inline struct tokenizer *byte_tokenizer_open(const char *const *specials)
{
    char directory[] = "/tmp/sluice-bytes-XXXXXX", path[64];
    struct buffer text = {0};
    struct tokenizer *tokenizer;
    struct err err = {0};
    assert_non_null(mkdtemp(directory));
    buffer_string(&text, "{\"added_tokens\":[");
    for (int i = 0; specials[i]; i++) {
        buffer_format(&text,
                      "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                      "\"normalized\":false,\"special\":true}",
                      i == 0 ? "" : ",", 256 + i, specials[i]);
    }
    buffer_string(&text, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                         "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
                         "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                         "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                         "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
                         "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{");
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[5] = {0};
        byte_tokenizer_letter(letter, byte);
        bool escaped = letter[0] == '"' || letter[0] == '\\';
        buffer_format(&text, "%s\"%s%s\":%u", byte == 0 ? "" : ",", escaped ? "\\" : "", letter, byte);
    }
    buffer_string(&text, "},\"merges\":[]}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.data, 1, text.length, file), text.length);
    fclose(file);
    buffer_free(&text);
    if (tokenizer_open(directory, &tokenizer, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    unlink(path);
    rmdir(directory);
    return tokenizer;
}

#endif
