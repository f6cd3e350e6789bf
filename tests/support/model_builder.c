/* Models on disk: the specs, the directory as a whole, and single files of it. */
#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_builder.h"

#include "base/err.h"

enum { PATH_BYTES = 1024 };

/* Ends the process with a message that includes errno. */
static _Noreturn void die(const char *what, const char *name)
{
    fprintf(stderr, "model_builder: %s %s: %s\n", what, name, strerror(errno));
    abort();
}

/* Opens DIRECTORY/NAME for writing; finish ends it and checks that all was written. */
static FILE *create(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) { die("cannot write", path); }
    return file;
}

static void finish(FILE *file, const char *name)
{
    if (ferror(file) || fclose(file) != 0) { die("cannot write", name); }
}

/* --- config.json and the files of sentence-transformers, of 2.x with transformers 4 and 6.x with 5 --- */

/* As transformers writes it for distilbert-base-uncased. */
static void write_distilbert_config(const struct model_spec *spec, const char *directory)
{
    FILE *file = create(directory, "config.json");
    fprintf(file,
            "{\n  \"activation\": \"%s\",\n  \"architectures\": [\"DistilBertForMaskedLM\"],\n"
            "  \"attention_dropout\": 0.1,\n  \"dim\": %u,\n  \"dropout\": 0.1,\n  \"hidden_dim\": %u,\n"
            "  \"initializer_range\": 0.02,\n  \"max_position_embeddings\": %u,\n  \"model_type\": \"distilbert\",\n"
            "  \"n_heads\": %u,\n  \"n_layers\": %u,\n  \"pad_token_id\": 0,\n  \"qa_dropout\": 0.1,\n"
            "  \"seq_classif_dropout\": 0.2,\n  \"sinusoidal_pos_embds\": false,\n  \"tie_weights_\": true,\n"
            "  \"transformers_version\": \"4.10.0.dev0\",\n  \"vocab_size\": %u\n}\n",
            spec->hidden_act, spec->hidden, spec->intermediate, spec->positions, spec->heads, spec->layers,
            spec->vocabulary);
    finish(file, "config.json");
}

static void write_config(const struct model_spec *spec, const char *directory)
{
    if (spec->distilbert) {
        write_distilbert_config(spec, directory);
        return;
    }
    bool current = spec->generation == GENERATION_CURRENT;
    FILE *file = create(directory, "config.json");
    fprintf(file,
            "{\n  \"architectures\": [\"BertModel\"],\n  \"attention_probs_dropout_prob\": 0.1,\n"
            "  \"classifier_dropout\": null,\n  \"hidden_act\": \"%s\",\n  \"hidden_dropout_prob\": 0.1,\n"
            "  \"hidden_size\": %u,\n  \"initializer_range\": 0.02,\n  \"intermediate_size\": %u,\n"
            "  \"layer_norm_eps\": 1e-12,\n  \"max_position_embeddings\": %u,\n  \"model_type\": \"bert\",\n"
            "  \"num_attention_heads\": %u,\n  \"num_hidden_layers\": %u,\n  \"pad_token_id\": 0,\n"
            "  \"type_vocab_size\": %u,\n  \"use_cache\": true,\n  \"vocab_size\": %u,\n",
            spec->hidden_act, spec->hidden, spec->intermediate, spec->positions, spec->heads, spec->layers,
            spec->token_types, spec->vocabulary);
    fputs(current ? "  \"add_cross_attention\": false,\n  \"bos_token_id\": null,\n  \"dtype\": \"float32\",\n"
                    "  \"eos_token_id\": null,\n  \"is_decoder\": false,\n  \"tie_word_embeddings\": true,\n"
                    "  \"transformers_version\": \"5.23.0\"\n}\n"
                  : "  \"_name_or_path\": \"nreimers/MiniLM-L6-H384-uncased\",\n  \"gradient_checkpointing\": false,\n"
                    "  \"position_embedding_type\": \"absolute\",\n  \"torch_dtype\": \"float32\",\n"
                    "  \"transformers_version\": \"4.8.2\"\n}\n",
          file);
    finish(file, "config.json");
}

static void make_folder(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) { die("cannot make", path); }
}

static void write_modules(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    const char *transformer = current ? "base.modules.transformer." : "models.";
    const char *pooling = current ? "sentence_transformer.modules.pooling." : "models.";
    const char *normalize = current ? "base.modules.normalize." : "models.";
    FILE *file = create(directory, "modules.json");
    fprintf(file,
            "[\n  {\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.%sTransformer\"},\n"
            "  {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.%sPooling\"}",
            transformer, pooling);
    if (spec->normalize) {
        fprintf(file,
                ",\n  {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", \"type\": "
                "\"sentence_transformers.%sNormalize\"}",
                normalize);
    }
    fputs("\n]\n", file);
    finish(file, "modules.json");
}

static void write_pooling(const struct model_spec *spec, const char *directory)
{
    const char *mean = spec->pooling == POOLING_CLS ? "false" : "true";
    const char *cls = spec->pooling == POOLING_CLS ? "true" : "false";
    make_folder(directory, "1_Pooling");
    FILE *file = create(directory, "1_Pooling/config.json");
    if (spec->generation == GENERATION_CURRENT) {
        fprintf(file, "{\"embedding_dimension\": %u, \"pooling_mode\": \"%s\", \"include_prompt\": true}\n",
                spec->hidden, spec->pooling == POOLING_CLS ? "cls" : "mean");
    } else {
        fprintf(file,
                "{\"word_embedding_dimension\": %u, \"pooling_mode_cls_token\": %s, \"pooling_mode_mean_tokens\": %s, "
                "\"pooling_mode_max_tokens\": false, \"pooling_mode_mean_sqrt_len_tokens\": false}\n",
                spec->hidden, cls, mean);
    }
    finish(file, "1_Pooling/config.json");
}

static void write_sentence_files(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    write_modules(spec, directory);
    write_pooling(spec, directory);
    FILE *file = create(directory, "sentence_bert_config.json");
    if (current) {
        fputs(
            "{\"transformer_task\": \"feature-extraction\", \"modality_config\": {\"text\": {\"method\": \"forward\", "
            "\"method_output_name\": \"last_hidden_state\"}}, \"module_output_name\": \"token_embeddings\"}\n",
            file);
    } else if (spec->max_tokens != 0) {
        fprintf(file, "{\"max_seq_length\": %u, \"do_lower_case\": false}\n", spec->max_tokens);
    } else {
        fputs("{\"max_seq_length\": null, \"do_lower_case\": false}\n", file);
    }
    finish(file, "sentence_bert_config.json");
    if (current && spec->normalize) {
        make_folder(directory, "2_Normalize");
        model_file_write(directory, "2_Normalize/config.json",
                         "{\"module_input_name\": \"sentence_embedding\", "
                         "\"module_output_name\": \"sentence_embedding\"}\n");
    }
    model_file_write(directory, "config_sentence_transformers.json",
                     current ? "{\"__version__\": {\"sentence_transformers\": \"6.2.0\", \"transformers\": \"5.23.0\", "
                               "\"pytorch\": \"2.9.1\"}, \"default_prompt_name\": null, \"model_type\": "
                               "\"SentenceTransformer\", \"prompts\": {\"query\": \"\", \"document\": \"\"}, "
                               "\"similarity_fn_name\": \"cosine\"}\n"
                             : "{\"__version__\": {\"sentence_transformers\": \"2.0.0\", \"transformers\": \"4.6.1\", "
                               "\"pytorch\": \"1.8.1\"}}\n");
}

/* --- A WordPiece vocabulary whose words follow from their ids, and the files around it as transformers has them --- */

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
    for (; *word != '\0'; word++) { fprintf(file, *word == '"' || *word == '\\' ? "\\%c" : "%c", *word); }
}

static void write_tokenizer_file(const struct model_spec *spec, const char *directory)
{
    FILE *file = create(directory, "tokenizer.json");
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
    finish(file, "tokenizer.json");
}

static void write_vocabulary(const struct model_spec *spec, const char *directory)
{
    FILE *file = create(directory, "vocab.txt");
    for (uint32_t id = 0; id < spec->vocabulary; id++) {
        char word[16];
        model_word(id, word);
        fprintf(file, "%s\n", word);
    }
    finish(file, "vocab.txt");
}

static void write_tokenizer_config(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    FILE *file = create(directory, "tokenizer_config.json");
    fprintf(file, "{\"cls_token\":\"[CLS]\",\"do_lower_case\":%s,\"mask_token\":\"[MASK]\",\"model_max_length\":",
            spec->cased ? "false" : "true");
    if (current && spec->max_tokens != 0) {
        fprintf(file, "%u", spec->max_tokens);
    } else {
        fputs("1000000000000000019884624838656", file);
    }
    fprintf(file,
            ",\"pad_token\":\"[PAD]\",\"sep_token\":\"[SEP]\",\"strip_accents\":null,\"tokenize_chinese_chars\":true,"
            "\"tokenizer_class\":\"BertTokenizer\",\"unk_token\":\"[UNK]\"%s}",
            current ? ",\"backend\":\"tokenizers\",\"is_local\":true" : "");
    finish(file, "tokenizer_config.json");
}

static void write_tokenizer(const struct model_spec *spec, const char *directory)
{
    write_tokenizer_file(spec, directory);
    write_tokenizer_config(spec, directory);
    if (spec->generation != GENERATION_CURRENT) { write_vocabulary(spec, directory); }
}

/* --- Weights --- */

/* Every value is a pure function of seed, tensor name and element index (no running generator), so that shards, dtypes
 * and prefixes do not change it and a test can ask for a single one. */

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
    for (; *name != '\0'; name++) { hash = mix(hash ^ (unsigned char)*name); }
    return hash;
}

/* Near enough to normal with variance 1: four 16-bit uniforms, centred and scaled. */
static float gaussian(uint64_t key, uint64_t element)
{
    uint64_t bits = mix(key ^ element * 0xD6E8FEB86659FD93ull);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) { sum += (int64_t)(bits >> 16 * i & 0xFFFF); }
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

/* Values here are normal halves or smaller; those below a half's normal range are rounded to a multiple of 2^-24. */
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
    for (int i = 1; i < exponent; i++) { value *= 2; }
    value = exponent == 0 ? value : value * 2;
    return half & 0x8000 ? -value : value;
}

static bool ends_with(const char *name, const char *tail)
{
    size_t length = strlen(name), tail_length = strlen(tail);
    return length >= tail_length && strcmp(name + length - tail_length, tail) == 0;
}

/* LayerNorm gains are around 1, everything else around 0. */
static float exact_value(const struct model_spec *spec, const char *name, uint64_t key, uint64_t element)
{
    float value = gaussian(key, element);
    if (ends_with(name, "LayerNorm.weight") || ends_with(name, "layer_norm.weight")) { return 1.0f + 0.1f * value; }
    return value * (ends_with(name, ".bias") ? 0.1f : spec->scale);
}

float model_weight(const struct model_spec *spec, const char *name, uint64_t element)
{
    float value = exact_value(spec, name, hash_name(spec->seed, name), element);
    if (spec->dtype == DTYPE_F32) { return value; }
    if (spec->dtype == DTYPE_F16) { return from_f16(to_f16(value)); }
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
    if (!spec->distilbert) {
        add(pieces, 2, spec->token_types, spec->hidden, "embeddings.token_type_embeddings.weight");
    }
    add(pieces, 1, spec->hidden, 1, "embeddings.LayerNorm.weight");
    add(pieces, 1, spec->hidden, 1, "embeddings.LayerNorm.bias");
    for (uint32_t l = 0; l < spec->layers; l++) { add_layer(pieces, spec, l); }
    if (spec->pooler && spec->distilbert) {
        add(pieces, 2, spec->hidden, spec->hidden, "vocab_transform.weight");
        add(pieces, 1, spec->hidden, 1, "vocab_layer_norm.bias");
        add(pieces, 1, spec->vocabulary, 1, "vocab_projector.bias");
        add(pieces, 2, spec->hidden, spec->hidden, "pre_classifier.weight");
    } else if (spec->pooler) {
        add(pieces, 2, spec->hidden, spec->hidden, "pooler.dense.weight");
        add(pieces, 1, spec->hidden, 1, "pooler.dense.bias");
        add(pieces, 2, 1, spec->hidden, "classifier.weight");
        add(pieces, 1, 1, 1, "classifier.bias");
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
    if (!spec->gamma_beta || norm == NULL) { return; }
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
    if (memory == NULL) { die("cannot open", "a memory stream"); }
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
    for (size_t pad = (8 - length % 8) % 8; pad > 0; pad--) { fputc(' ', memory); }
    fclose(memory);
    for (int i = 0; i < 8; i++) { fputc((int)(length >> 8 * i & 0xFF), file); }
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
    FILE *file = create(directory, name);
    write_header(file, spec, pieces, count);
    for (size_t i = 0; i < count; i++) { write_piece(file, spec, &pieces[i]); }
    finish(file, name);
}

static void write_shards(const struct model_spec *spec, const char *directory, const struct pieces *pieces)
{
    FILE *index = create(directory, "model.safetensors.index.json");
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
    finish(index, "model.safetensors.index.json");
}

static void write_weights(const struct model_spec *spec, const char *directory)
{
    struct pieces *pieces = calloc(1, sizeof *pieces);
    if (pieces == NULL) { die("no memory for", "the list of tensors"); }
    list_pieces(pieces, spec);
    if (spec->shards > 0) {
        write_shards(spec, directory, pieces);
    } else {
        write_weight_file(spec, directory, "model.safetensors", pieces->list, pieces->count);
    }
    free(pieces);
}

/* --- The specs, the directory as a whole, and single files of it --- */

struct model_spec model_spec_tiny(void)
{
    return (struct model_spec){
        .seed = 1,
        .generation = GENERATION_CLASSIC,
        .vocabulary = 512,
        .positions = 64,
        .token_types = 2,
        .hidden = 32,
        .layers = 2,
        .heads = 4,
        .intermediate = 64,
        .hidden_act = "gelu",
        .scale = 0.05f,
        .pooling = POOLING_MEAN,
        .normalize = true,
        .prefix = "",
    };
}

void model_build_into(const struct model_spec *spec, const char *directory)
{
    assert(spec->vocabulary >= MODEL_SPEC_MIN_VOCABULARY && spec->layers <= 64);
    write_config(spec, directory);
    write_weights(spec, directory);
    write_tokenizer(spec, directory);
    if (spec->generation != GENERATION_BARE) { write_sentence_files(spec, directory); }
}

char *model_build(const struct model_spec *spec)
{
    const char *base = getenv("TMPDIR");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/sluice-model-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(path) == NULL) { die("cannot make", path); }
    model_build_into(spec, path);
    char *directory = strdup(path);
    if (directory == NULL) { die("no memory for", path); }
    return directory;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void model_build_remove(char *directory)
{
    if (nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) { die("cannot remove", directory); }
    free(directory);
}

void model_file_write(const char *directory, const char *name, const char *text)
{
    FILE *file = create(directory, name);
    fputs(text, file);
    finish(file, name);
}

void model_file_remove(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (remove(path) != 0) { die("cannot remove", path); }
}

char *model_file_read(const char *directory, const char *name, size_t *length)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0) { die("cannot read", path); }
    char *text = malloc((size_t)info.st_size + 1);
    if (text == NULL || fread(text, 1, (size_t)info.st_size, file) != (size_t)info.st_size) {
        die("cannot read", path);
    }
    text[info.st_size] = '\0';
    if (length != NULL) { *length = (size_t)info.st_size; }
    fclose(file);
    return text;
}

void model_file_edit(const char *directory, const char *name, const char *from, const char *to)
{
    char *text = model_file_read(directory, name, NULL);
    char *at = strstr(text, from);
    if (at == NULL || strstr(at + 1, from) != NULL) {
        fprintf(stderr, "model_builder: %s must have \"%s\" exactly once\n", name, from);
        abort();
    }
    FILE *file = create(directory, name);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    finish(file, name);
    free(text);
}
