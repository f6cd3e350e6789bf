/* A WordPiece vocabulary whose words are known by their id, and the files around it as transformers writes them. */
#include <string.h>

#include "model_builder_parts.h"

/* Five special tokens, every printable ASCII character that can stand alone, the continuation of every letter and
 * digit, fillers up to the fixed border, then words. */
void model_word(uint32_t id, char *to)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    static const char alone[] = "abcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    uint32_t at = id, count = sizeof special / sizeof special[0];
    if (at < count) {
        strcpy(to, special[at]);
        return;
    }
    at -= count;
    count = sizeof alone - 1;
    if (at < count) {
        snprintf(to, 16, "%c", alone[at]);
        return;
    }
    at -= count;
    if (at < 36) {
        snprintf(to, 16, "##%c", alone[at]);
        return;
    }
    at -= 36;
    if (id < MODEL_SPEC_MIN_VOCABULARY) {
        snprintf(to, 16, "[unused%u]", at);
        return;
    }
    /* Consonant-vowel syllables, two at least: 100 of them in base 100. */
    static const char consonants[] = "bcdfghjklmnpqrstvwxz", vowels[] = "aeiou";
    uint32_t number = id - MODEL_SPEC_MIN_VOCABULARY;
    int length = 0;
    for (int syllable = 0; syllable < 2 || number > 0; syllable++, number /= 100) {
        to[length++] = consonants[number % 100 / 5];
        to[length++] = vowels[number % 5];
    }
    to[length] = '\0';
}

static void write_escaped(FILE *file, const char *word)
{
    for (; *word != '\0'; word++)
        fprintf(file, *word == '"' || *word == '\\' ? "\\%c" : "%c", *word);
}

static void write_tokenizer_file(const struct model_spec *spec, const char *directory)
{
    FILE *file = builder_create(directory, "tokenizer.json");
    fputs("{\"version\":\"1.0\",", file);
    fputs(spec->baked_limits
              ? "\"truncation\":{\"direction\":\"Right\",\"max_length\":7,\"strategy\":\"LongestFirst\",\"stride\":0},"
                "\"padding\":{\"strategy\":{\"Fixed\":7},\"direction\":\"Right\",\"pad_to_multiple_of\":null,\"pad_"
                "id\":0,"
                "\"pad_type_id\":0,\"pad_token\":\"[PAD]\"},"
              : "\"truncation\":null,\"padding\":null,",
          file);
    fputs("\"added_tokens\":[", file);
    for (uint32_t id = 0; id < 5; id++) {
        char word[16];
        model_word(id, word);
        fprintf(file,
                "%s{\"id\":%u,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                "\"normalized\":false,\"special\":true}",
                id > 0 ? "," : "", id, word);
    }
    fprintf(file,
            "],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
            "\"strip_accents\":null,\"lowercase\":%s},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},",
            spec->cased ? "false" : "true");
    fputs("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\","
          "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":"
          "0}}],"
          "\"pair\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
          "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},"
          "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":1}}],\"special_tokens\":{"
          "\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2],\"tokens\":[\"[CLS]\"]},"
          "\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[3],\"tokens\":[\"[SEP]\"]}}},"
          "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},",
          file);
    fputs("\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
          "\"max_input_chars_per_word\":100,\"vocab\":{",
          file);
    for (uint32_t id = 0; id < spec->vocabulary; id++) {
        char word[16];
        model_word(id, word);
        fputs(id > 0 ? ",\"" : "\"", file);
        write_escaped(file, word);
        fprintf(file, "\":%u", id);
    }
    fputs("}}}", file);
    builder_finish(file, "tokenizer.json");
}

static void write_vocabulary(const struct model_spec *spec, const char *directory)
{
    FILE *file = builder_create(directory, "vocab.txt");
    for (uint32_t id = 0; id < spec->vocabulary; id++) {
        char word[16];
        model_word(id, word);
        fprintf(file, "%s\n", word);
    }
    builder_finish(file, "vocab.txt");
}

static void write_tokenizer_config(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    FILE *file = builder_create(directory, "tokenizer_config.json");
    fprintf(file, "{\"cls_token\":\"[CLS]\",\"do_lower_case\":%s,\"mask_token\":\"[MASK]\",\"model_max_length\":",
            spec->cased ? "false" : "true");
    if (current && spec->max_tokens != 0)
        fprintf(file, "%u", spec->max_tokens);
    else
        fputs("1000000000000000019884624838656", file);
    fprintf(file,
            ",\"pad_token\":\"[PAD]\",\"sep_token\":\"[SEP]\",\"strip_accents\":null,\"tokenize_chinese_chars\":true,"
            "\"tokenizer_class\":\"BertTokenizer\",\"unk_token\":\"[UNK]\"%s}",
            current ? ",\"backend\":\"tokenizers\",\"is_local\":true" : "");
    builder_finish(file, "tokenizer_config.json");
}

void builder_write_tokenizer(const struct model_spec *spec, const char *directory)
{
    write_tokenizer_file(spec, directory);
    write_tokenizer_config(spec, directory);
    if (spec->generation != GENERATION_CURRENT)
        write_vocabulary(spec, directory);
}
