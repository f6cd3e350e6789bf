#include "engine/int8_choice.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/version.h"
#include "engine/decoder.h"
#include "engine/encoder.h"
#include "engine/kept.h"

/* How far the sample's vectors, or a language model's likelihoods, are from those without int8. */
struct errors {
    double mean, worst;
};

/* The errors that pass. The mean of vectors was set so that of the ten nearest of 2,000 texts at most one in forty
 * changes, in two widely used models (docs/speed.md): with twice as much it was one in 33. That of likelihoods is by
 * how much the logarithm of the perplexity grows of texts as the model itself writes them: by at most 1 %. */
static const struct errors vectors_most = {4.7e-4, 5e-3}, likelihoods_most = {0.01, 0.1};

enum {
    TEXT_TOKENS = 96, /* at most, of a text; of a pair twice as many */
    FIRST_TEXTS = 3,  /* that prices are found with */
    TURNS = 4,        /* parts of a text; after each the next token's likelihoods are compared */
    TEXT_BLOCKS = TEXT_TOKENS / DECODER_BLOCK,
    LM_HEAD = ENGINE_PRODUCTS, /* a unit's product, beside those of a layer */
    SPLITS = 12,               /* of units into halves */
    UNITS_MOST = ENGINE_PRODUCTS + 1 + SPLITS,
    PARTS_MOST = 4, /* of a batch, each in a thread of its own */
    HEAD_BYTES = 512,
};

/* The first ones are plain sentences: a product's price on their 80 tokens is within a fifth of that on all texts. */
static const char *const sample[] = {
    "Un vent froid soufflait sur la place quand les premiers marchands ont ouvert leurs étals de légumes.",
    "Refund requested: the blue jacket (size M) arrived with a broken zip.",
    "Bu kitabı geçen yaz deniz kenarında iki günde okudum.",
    "How do I reset my password?",
    "The ferry to the island leaves at a quarter past nine from the northern pier, unless the wind is above force "
    "eight; tickets that were bought online stay valid for the next crossing, and bicycles travel free of charge.",
    "def merge(left, right):\n    out = []\n    while left and right:\n        out.append((left if left[0] <= right[0] "
    "else right).pop(0))\n    return out + left + right",
    "红色的自行车停在图书馆门口，车筐里放着一本旧字典和两个苹果。",
    "Die Sitzung wurde auf Donnerstag verschoben, weil der Kassenbericht noch nicht vorlag.",
    "Поезд опоздал на сорок минут, и мы едва успели на последний автобус до деревни.",
    "yes",
    "Error 0x80070057: the parameter is incorrect (code 87) at offset 4096",
    "الطقس اليوم معتدل مع احتمال هطول أمطار خفيفة في المساء.",
    "A gene variant in the promoter region was associated with lower serum levels in 214 of 1,032 participants "
    "(p < 0.01), but the effect vanished after adjustment for age and body mass index.",
    "昨日の夜、駅前の小さな店で食べたうどんがとてもおいしかった。",
    "SELECT city, COUNT(*) FROM orders WHERE placed_at >= '2024-01-01' GROUP BY city HAVING COUNT(*) > 10;",
    "best running shoes for flat feet",
    "El contrato podrá rescindirse por cualquiera de las partes con un preaviso de treinta días naturales.",
    "त्योहार के दिन पूरा परिवार एक साथ बैठकर मिठाइयाँ बनाता है।",
    "The committee found that the bridge had been inspected twice in the preceding decade, that both reports had "
    "recommended the replacement of corroded bearings on the eastern abutment, and that neither recommendation had "
    "reached the office that pays for repairs.",
    "지하철에서 우산을 잃어버렸는데 분실물 센터에 전화하면 찾을 수 있을까요?",
    "O rio subiu dois metros durante a noite e a estrada antiga ficou coberta de lama.",
    "https://example.org/docs/install?lang=en#step-3",
    "int main(void) { for (int i = 0; i < 10; i++) { printf(\"%d\\n\", i * i); } return 0; }",
    "What is the boiling point of water at an altitude of 3,000 metres?",
    "Przepis na zupę: obierz ziemniaki, pokrój marchew, dodaj cebulę i gotuj przez pół godziny.",
    "Central banks raise interest rates to slow inflation; borrowing becomes dearer, spending falls, and prices rise "
    "less quickly, though often only after a year or more.",
    "Thư viện mở cửa từ tám giờ sáng đến sáu giờ chiều, trừ chủ nhật.",
    "cheap flights lisbon to oslo march",
    "Το μουσείο θα παραμείνει κλειστό για εργασίες συντήρησης έως τα τέλη του μήνα.",
    "Add two cups of flour, a pinch of salt and enough warm water to make a soft dough, then let it rest under a cloth "
    "for an hour before you roll it out.",
    "{\"id\": 1042, \"status\": \"shipped\", \"items\": [{\"sku\": \"A-17\", \"qty\": 2}], \"total\": 39.90}",
    "The cat slept on the warm windowsill.",
    "A cat was sleeping on a sunny window ledge.",
    "ฝนตกหนักตั้งแต่เช้า ทำให้รถติดยาวหลายกิโลเมตร",
    "Proof. Suppose n is even; then n = 2k for some integer k, hence n^2 = 4k^2 is divisible by four.",
    "De trein naar Utrecht vertrekt vandaag van spoor zeven in plaats van spoor vijf.",
    "lol that was the worst movie i have seen this year :( 2/10",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen; it takes place in the chloroplasts of "
    "plant cells, whose green pigment absorbs mostly red and blue light.",
    "git rebase --onto main feature~3 feature",
    "La nonna teneva le lettere in una scatola di latta sotto il letto.",
    "How can I change the password of my account?",
    "Quarterly revenue rose 12.4% to $3.1 billion, while operating margin fell by 80 basis points.",
};
enum { TEXTS = sizeof sample / sizeof sample[0] };

/* A product in layers that follow each other: it is chosen in all of them or in none. */
struct unit {
    uint32_t first, last; /* layers, the last one excluded; of lm_head 0 and 1 */
    int product;
    double error; /* of the first texts, if this unit alone is in int8 */
    double price; /* the same for each multiplication saved */
};

/* Texts that follow each other, and who runs them. */
struct part {
    struct trial *trial;
    struct encoder *encoder;
    struct decoder *decoder;    /* of a language model, instead */
    struct layer_inputs inputs; /* of the encoder's first texts, without int8 */
    uint32_t first, last;       /* texts, the last one excluded */
    bool plain;                 /* without int8: the results are kept */
    pthread_t thread;
    bool started;
    enum status status;
    struct err err;
};

struct trial {
    const struct model *model;
    struct engine *engine;
    struct part parts[PARTS_MOST];
    uint32_t part_count;
    int32_t *ids;
    uint32_t used; /* of them */
    uint32_t start[TEXTS], length[TEXTS], second[TEXTS];
    float *plain;              /* [TEXTS, dim] without int8; [TEXTS, TURNS, vocabulary] likelihoods */
    float *output;             /* [TEXTS, dim] of the last run */
    double spread;             /* of scores; 0: vectors are compared by their cosine */
    double sure[TEXTS][TURNS]; /* the mean logarithm of likelihoods without int8 */
    double error[TEXTS];       /* of the last run */
    bool uses_inputs; /* an encoder's run begins at layer `from`; if that is 0, it keeps what others begin with */
    uint32_t from;
    struct engine_int8 *choice;
    struct unit units[UNITS_MOST];
    uint32_t unit_count;
};

/* --- the sample as ids --- */

/* A model without a tokenizer, as in tests, gets ids from all over its vocabulary. */
static void make_ids(struct trial *trial, uint32_t text, int32_t *ids, uint32_t most)
{
    uint32_t count = (uint32_t)strlen(sample[text]) / 4 + 1;
    trial->length[text] = count < most ? count : most;
    for (uint32_t i = 0; i < trial->length[text]; i++) {
        ids[i] = (int32_t)((text * 7919 + i + 1) * 2654435761u % trial->model->vocabulary);
    }
}

/* A reranker gets pairs: a text and the next one. */
static enum status encode_pair(struct trial *trial, uint32_t text, int32_t *ids, uint32_t most, struct err *err)
{
    const struct tokenizer *tokenizer = trial->model->tokenizer;
    const char *other = sample[(text + 1) % TEXTS];
    int32_t *query;
    uint32_t count;
    bool truncated;
    TRY(tokenizer_encode_whole(tokenizer, sample[text], strlen(sample[text]), &query, &count, err));
    enum status status =
        tokenizer_encode_pair(tokenizer, query, count < TEXT_TOKENS ? count : TEXT_TOKENS, other, strlen(other), most,
                              ids, &trial->length[text], &trial->second[text], &truncated, err);
    free(query);
    return status;
}

static enum status encode_sample(struct trial *trial, struct err *err)
{
    const struct model *model = trial->model;
    bool types, pairs = model->tokenizer && model->head.labels == 1 && tokenizer_pairs(model->tokenizer, &types);
    uint32_t most = pairs ? 2 * TEXT_TOKENS : TEXT_TOKENS;
    most = most < model->max_tokens ? most : model->max_tokens;
    size_t results = (size_t)TEXTS * (model->generates ? TURNS * (size_t)model->vocabulary : 2 * (size_t)model->dim);
    trial->ids = malloc((size_t)TEXTS * most * sizeof *trial->ids);
    trial->plain = malloc(results * sizeof *trial->plain);
    if (!trial->ids || !trial->plain) { return err_set(err, STATUS_NO_MEMORY, "no memory for a sample of texts"); }
    trial->output = trial->plain + (size_t)TEXTS * model->dim;
    for (uint32_t text = 0; text < TEXTS; text++) {
        int32_t *ids = trial->ids + trial->used;
        bool truncated;
        trial->start[text] = trial->used;
        if (!model->tokenizer) {
            make_ids(trial, text, ids, most);
        } else if (pairs) {
            TRY(encode_pair(trial, text, ids, most, err));
        } else {
            TRY(model_encode(model, sample[text], strlen(sample[text]), most, ids, &trial->length[text], &truncated,
                             err));
        }
        trial->length[text] = model_head_tokens(model, ids, trial->length[text]);
        trial->used += trial->length[text];
    }
    return STATUS_OK;
}

/* --- errors --- */

static double one_less_cosine(const float *a, const float *b, uint32_t count)
{
    double aa = 0, bb = 0, ab = 0;
    for (uint32_t i = 0; i < count; i++) {
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
        ab += (double)a[i] * (double)b[i];
    }
    return 1 - ab / sqrt(aa * bb);
}

static double square_distance(const float *a, const float *b, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) { sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]); }
    return sum;
}

/* The mean square distance of scores from their mean. */
static double spread_of(const float *scores, uint32_t rows, uint32_t labels)
{
    double spread = 0;
    for (uint32_t label = 0; label < labels; label++) {
        double sum = 0, squares = 0;
        for (uint32_t row = 0; row < rows; row++) {
            double score = (double)scores[(size_t)row * labels + label];
            sum += score;
            squares += score * score;
        }
        spread += squares / rows - sum / rows * (sum / rows);
    }
    return spread;
}

/* The error of a text's vector. Half the square distance of two vectors of length 1 is 1 less their cosine; scores are
 * measured in the same way, in units of their spread. */
static double error_of(const struct trial *trial, uint32_t text)
{
    uint32_t dim = trial->model->dim;
    const float *plain = trial->plain + (size_t)text * dim, *output = trial->output + (size_t)text * dim;
    return trial->spread > 0 ? square_distance(plain, output, dim) / (2 * trial->spread)
                             : one_less_cosine(plain, output, dim);
}

/* The logarithm of the sum of the exponentials of logits. */
static double log_sum_exp(const float *logits, uint32_t count)
{
    double sum = 0;
    float largest = logits[0];
    for (uint32_t i = 1; i < count; i++) { largest = logits[i] > largest ? logits[i] : largest; }
    for (uint32_t i = 0; i < count; i++) { sum += (double)expf(logits[i] - largest); }
    return log(sum) + (double)largest;
}

/* The sum of the likelihoods times the logarithms of those that the logits mean. */
static double mean_logarithm(const float *likelihoods, const float *logits, double scale, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) { sum += (double)likelihoods[i] * ((double)logits[i] - scale); }
    return sum;
}

/* Keeps the likelihoods of the token after a text's turn, or returns how far they diverge from those that are kept. */
static double take_logits(struct trial *trial, bool plain, uint32_t text, uint32_t turn, const float *logits)
{
    uint32_t count = trial->model->vocabulary;
    float *likelihoods = trial->plain + ((size_t)text * TURNS + turn) * count;
    double scale = log_sum_exp(logits, count), *sure = &trial->sure[text][turn];
    for (uint32_t i = 0; i < count && plain; i++) { likelihoods[i] = expf(logits[i] - (float)scale); }
    double mean = mean_logarithm(likelihoods, logits, scale, count);
    if (plain) { *sure = mean; }
    return *sure - mean;
}

static enum status open_parts(struct trial *trial, struct err *err)
{
    const struct decoder_options sizes = {
        .blocks = TEXTS * TEXT_BLOCKS, .step_tokens = TEXTS * (TEXT_TOKENS / TURNS + 1), .step_rows = TEXTS};
    unsigned threads = engine_default_threads();
    for (; trial->part_count < PARTS_MOST && trial->part_count < threads; trial->part_count++) {
        struct part *part = &trial->parts[trial->part_count];
        if (trial->model->generates) {
            TRY(decoder_open(trial->engine, &sizes, &part->decoder, err));
        } else {
            TRY(encoder_open(trial->engine, &part->encoder, err));
        }
        part->trial = trial;
    }
    return STATUS_OK;
}

/* A language model's texts, beside each other, in TURNS turns. A text of fewer tokens has no part of some turns. */
static enum status decode_part(struct part *part, struct err *err)
{
    struct trial *trial = part->trial;
    uint32_t blocks[TEXTS][TEXT_BLOCKS], asked[TEXTS] = {0};
    for (uint32_t i = 0; i < TEXTS * TEXT_BLOCKS; i++) { blocks[i / TEXT_BLOCKS][i % TEXT_BLOCKS] = i; }
    for (uint32_t text = part->first; text < part->last; text++) { trial->error[text] = 0; }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct decoder_row rows[TEXTS];
        uint32_t texts[TEXTS], count = 0;
        float *logits;
        for (uint32_t text = part->first; text < part->last; text++) {
            uint32_t length = trial->length[text], first = length * turn / TURNS, last = length * (turn + 1) / TURNS;
            if (first == last) { continue; }
            texts[count] = text;
            rows[count++] = (struct decoder_row){.ids = trial->ids + trial->start[text] + first,
                                                 .count = last - first,
                                                 .position = first,
                                                 .blocks = blocks[text],
                                                 .logits = true};
        }
        if (count == 0) { continue; }
        TRY(decoder_step(part->decoder, rows, count, &logits, err));
        for (uint32_t i = 0; i < count; i++, logits += trial->model->vocabulary) {
            trial->error[texts[i]] += take_logits(trial, part->plain, texts[i], turn, logits);
            asked[texts[i]]++;
        }
    }
    for (uint32_t text = part->first; text < part->last; text++) { trial->error[text] /= asked[text]; }
    return STATUS_OK;
}

/* A vector that is not finite is no error here: the errors are then NaN, and pass no bound. */
static enum status encode_part(struct part *part, struct err *err)
{
    struct trial *trial = part->trial;
    float *output = part->plain ? trial->plain : trial->output;
    uint32_t start[TEXTS], origin = trial->start[part->first];
    for (uint32_t text = part->first; text < part->last; text++) { start[text] = trial->start[text] - origin; }
    const struct engine_batch batch = {
        .rows = part->last - part->first,
        .extent = (part->last < TEXTS ? trial->start[part->last] : trial->used) - origin,
        .ids = trial->ids + origin,
        .start = start + part->first,
        .length = trial->length + part->first,
        .output = output + (size_t)part->first * trial->model->dim,
        .second = trial->second + part->first,
    };
    part->inputs.extent = batch.extent;
    part->inputs.from = trial->from;
    part->encoder->inputs = trial->uses_inputs ? &part->inputs : NULL;
    enum status status = encoder_run(part->encoder, &batch, err);
    for (uint32_t text = part->first; text < part->last && !part->plain; text++) {
        trial->error[text] = error_of(trial, text);
    }
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

static void *run_part(void *context)
{
    struct part *part = context;
    part->status = (part->decoder ? decode_part : encode_part)(part, &part->err);
    return NULL;
}

/* Runs the first texts with the products of trial->choice in int8, in parts of about as many tokens; `plain`: these are
 * none, and the results are kept. */
static enum status run_texts(struct trial *trial, uint32_t texts, bool plain, struct err *err)
{
    uint32_t tokens = texts < TEXTS ? trial->start[texts] : trial->used, first = 0;
    trial->engine->backend->ops->set_int8(trial->engine->backend, trial->choice);
    for (uint32_t p = 0; p < trial->part_count; p++) {
        struct part *part = &trial->parts[p];
        uint32_t end = (uint32_t)((uint64_t)tokens * (p + 1) / trial->part_count), last = first;
        while (last < texts && (trial->start[last] < end || p + 1 == trial->part_count)) { last++; }
        part->first = first;
        part->last = first = last;
        part->plain = plain;
        part->status = STATUS_OK;
        bool other = part->first < part->last && p + 1 < trial->part_count;
        part->started = other && pthread_create(&part->thread, NULL, run_part, part) == 0;
        if (!part->started && part->first < part->last) { run_part(part); }
    }
    enum status status = STATUS_OK;
    for (uint32_t p = 0; p < trial->part_count; p++) {
        struct part *part = &trial->parts[p];
        if (part->started) { pthread_join(part->thread, NULL); }
        if (part->status != STATUS_OK && status == STATUS_OK) {
            status = part->status;
            if (err) { *err = part->err; }
        }
    }
    return status;
}

/* The errors of the first texts with the products of trial->choice in int8. */
static enum status measure_choice(struct trial *trial, uint32_t texts, struct errors *errors, struct err *err)
{
    *errors = (struct errors){0, 0};
    TRY(run_texts(trial, texts, false, err));
    for (uint32_t text = 0; text < texts; text++) {
        double error = trial->error[text];
        errors->mean += error / texts;
        errors->worst = error <= errors->worst || isnan(errors->worst) ? errors->worst : error;
    }
    return STATUS_OK;
}

static struct errors errors_most(const struct trial *trial)
{
    return trial->model->generates ? likelihoods_most : vectors_most;
}

/* The share of the bounds that the errors take; NaN if they are. */
static double bound_share(const struct trial *trial, const struct errors *errors)
{
    double mean = errors->mean / errors_most(trial).mean, worst = errors->worst / errors_most(trial).worst;
    return isnan(mean) || mean > worst ? mean : worst;
}

/* False for NaN. */
static bool errors_pass(const struct trial *trial, const struct errors *errors)
{
    return errors->mean <= errors_most(trial).mean && errors->worst <= errors_most(trial).worst;
}

/* --- the choice --- */

static void set_unit(const struct trial *trial, const struct unit *unit, bool in_int8)
{
    if (unit->product == LM_HEAD) {
        trial->choice->lm_head = in_int8;
        return;
    }
    for (uint32_t layer = unit->first; layer < unit->last; layer++) {
        trial->choice->in_int8[layer][unit->product] = in_int8;
    }
}

static void set_all(const struct trial *trial, bool in_int8)
{
    memset(trial->choice->in_int8, in_int8, trial->choice->layers * sizeof *trial->choice->in_int8);
    trial->choice->lm_head = in_int8 && trial->model->generates;
}

/* The multiplications of a token in a unit. */
static double unit_size(const struct trial *trial, const struct unit *unit)
{
    const struct model *model = trial->model;
    double hidden = model->hidden, query = model_query_width(model), key = model_key_width(model);
    double inner = model->intermediate_size;
    const double sizes[] = {
        [ENGINE_QUERY_KEY] = hidden * (query + key),
        [ENGINE_VALUE] = hidden * key,
        [ENGINE_ATTENTION_OUTPUT] = hidden * query,
        [ENGINE_INTERMEDIATE] = hidden * inner * (model->gated ? 2 : 1),
        [ENGINE_OUTPUT] = hidden * inner,
        [LM_HEAD] = hidden * model->vocabulary,
    };
    return sizes[unit->product] * (unit->last - unit->first);
}

/* NaN comes last. */
static int by_price(const void *a, const void *b)
{
    double x = ((const struct unit *)a)->price, y = ((const struct unit *)b)->price;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}

static void set_error(const struct trial *trial, struct unit *unit, double error)
{
    unit->error = error;
    unit->price = error / unit_size(trial, unit);
}

/* Runs the first texts without int8 and keeps the inputs of their layers, with which prices of units begin. */
static enum status keep_inputs(struct trial *trial, struct err *err)
{
    const struct model *model = trial->model;
    size_t rows = (size_t)model->layer_count * trial->start[FIRST_TEXTS] * LAYER_INPUT * model->hidden;
    for (uint32_t p = 0; p < trial->part_count; p++) {
        struct layer_inputs *inputs = &trial->parts[p].inputs;
        inputs->rows = malloc(rows * sizeof *inputs->rows);
        if (!inputs->rows) { return err_set(err, STATUS_NO_MEMORY, "no memory for the inputs of layers"); }
    }
    set_all(trial, false);
    trial->uses_inputs = true;
    enum status status = run_texts(trial, FIRST_TEXTS, true, err);
    trial->uses_inputs = false;
    return status;
}

/* Tries a unit alone on the first texts. */
static enum status price_unit(struct trial *trial, struct unit *unit, struct err *err)
{
    struct errors errors;
    set_all(trial, false);
    set_unit(trial, unit, true);
    trial->from = unit->first;
    trial->uses_inputs = unit->first > 0;
    enum status status = measure_choice(trial, FIRST_TEXTS, &errors, err);
    trial->from = 0;
    trial->uses_inputs = false;
    if (status != STATUS_OK) { return status; }
    set_error(trial, unit, errors.mean);
    return STATUS_OK;
}

/* The number of units to try next, of which `passes` pass and `fails` do not: as many as would reach the bounds if
 * errors added up as those of `count` units do, which reach this share of the bounds. At most `passes`: the end. */
static uint32_t next_count(const struct trial *trial, uint32_t passes, uint32_t fails, uint32_t count, double share)
{
    double reached = 0, sum = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) { reached += trial->units[i].error; }
    if (!isfinite(reached) || !isfinite(share)) { return passes + (fails - passes) / 2; }
    while (next + 1 < fails && (sum + trial->units[next].error) * share <= reached) {
        sum += trial->units[next++].error;
    }
    return next == 0 && fails > 1 ? 1 : next;
}

/* The unit of several layers that is best split: the cheapest one of those that will not be taken, or else the dearest
 * one. Sorts the units; NULL: each has one layer. */
static struct unit *unit_to_split(struct trial *trial, double share)
{
    uint32_t count = trial->unit_count, taken;
    struct unit *found = NULL;
    qsort(trial->units, count, sizeof *trial->units, by_price);
    taken = next_count(trial, 0, count, count, share);
    for (uint32_t i = 0; i < count; i++) {
        if (trial->units[i].last - trial->units[i].first == 1) { continue; }
        found = &trial->units[i];
        if (i >= taken) { break; }
    }
    return found;
}

/* Splits a unit into halves: tries the upper one, and the lower one if little error is left (large ones do not add). */
static enum status split_unit(struct trial *trial, struct unit *unit, struct err *err)
{
    struct unit *upper = &trial->units[trial->unit_count++];
    *upper = *unit;
    unit->last = upper->first = unit->first + (unit->last - unit->first) / 2;
    TRY(price_unit(trial, upper, err));
    double rest = unit->error - upper->error;
    if (rest < upper->error / 4) { return price_unit(trial, unit, err); }
    set_error(trial, unit, rest); /* may be NaN */
    return STATUS_OK;
}

/* Makes units, and finds their prices, layer by layer only where that decides what is taken. All products together
 * reach this share of the bounds. */
static enum status price_units(struct trial *trial, double share, struct err *err)
{
    struct unit *unit = NULL;
    for (int product = 0; product < ENGINE_PRODUCTS; product++) {
        trial->units[product] = (struct unit){0, trial->model->layer_count, product, 0, 0};
    }
    trial->units[LM_HEAD] = (struct unit){0, 1, LM_HEAD, 0, 0};
    trial->unit_count = ENGINE_PRODUCTS + trial->model->generates;
    if (!trial->model->generates) { TRY(keep_inputs(trial, err)); }
    for (uint32_t i = 0; i < trial->unit_count; i++) { TRY(price_unit(trial, &trial->units[i], err)); }
    while (trial->unit_count < UNITS_MOST && (unit = unit_to_split(trial, share)) != NULL) {
        TRY(split_unit(trial, unit, err));
    }
    qsort(trial->units, trial->unit_count, sizeof *trial->units, by_price);
    return STATUS_OK;
}

/* Finds the most units, the cheapest first, with which the whole sample passes; with all of them it has the errors
 * given, which do not pass. */
static enum status take_units(struct trial *trial, struct errors *errors, struct err *err)
{
    uint32_t passes = 0, fails = trial->unit_count, count = fails;
    struct errors now = *errors;
    *errors = (struct errors){0, 0};
    while ((count = next_count(trial, passes, fails, count, bound_share(trial, &now))) > passes) {
        for (uint32_t i = 0; i < trial->unit_count; i++) { set_unit(trial, &trial->units[i], i < count); }
        TRY(measure_choice(trial, TEXTS, &now, err));
        *(errors_pass(trial, &now) ? &passes : &fails) = count;
        *errors = errors_pass(trial, &now) ? now : *errors;
    }
    for (uint32_t i = 0; i < trial->unit_count; i++) { set_unit(trial, &trial->units[i], i < passes); }
    return STATUS_OK;
}

static enum status run_trial(struct trial *trial, struct err *err)
{
    struct errors errors;
    TRY(encode_sample(trial, err));
    TRY(open_parts(trial, err));
    set_all(trial, false); /* a damaged file may have set some */
    TRY(run_texts(trial, TEXTS, true, err));
    if (trial->model->head.labels > 0) {
        trial->spread = fmax(spread_of(trial->plain, TEXTS, trial->model->dim), 1e-12);
    }
    set_all(trial, true);
    TRY(measure_choice(trial, TEXTS, &errors, err));
    if (!errors_pass(trial, &errors)) {
        TRY(price_units(trial, bound_share(trial, &errors), err));
        TRY(take_units(trial, &errors, err));
    }
    trial->choice->mean_error = errors.mean;
    trial->choice->worst_error = errors.worst;
    return STATUS_OK;
}

/* Tries int8 on an engine that keeps each product in both ways. */
static enum status try_int8(struct engine *engine, struct engine_int8 *choice, struct err *err)
{
    struct trial trial = {.model = engine->backend->model, .engine = engine, .choice = choice};
    enum status status = run_trial(&trial, err);
    for (uint32_t part = 0; part < PARTS_MOST; part++) {
        encoder_close(trial.parts[part].encoder);
        decoder_close(trial.parts[part].decoder);
        free(trial.parts[part].inputs.rows);
    }
    free(trial.ids);
    free(trial.plain);
    return status;
}

static void count_products(struct engine_int8 *choice)
{
    memset(choice->count, 0, sizeof choice->count);
    choice->total = choice->lm_head;
    for (uint32_t layer = 0; layer < choice->layers; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            choice->count[product] += choice->in_int8[layer][product];
            choice->total += choice->in_int8[layer][product];
        }
    }
}

/* --- what is kept: the choice of a model here, layer by layer --- */

static void print_head(const struct model *model, char out[HEAD_BYTES])
{
    char set[64];
    snprintf(out, HEAD_BYTES, "sluice int8 1\nversion %s\nmodel %s\ninstructions %s\nlayers %" PRIu32 "\n%s",
             sluice_version, model->id, engine_instruction_set(set), model->layer_count,
             model->generates ? "generates\n" : "");
}

static void print_choice(const struct model *model, const struct engine_int8 *choice, struct buffer *out)
{
    buffer_format(out, "mean %.17g worst %.17g\n", choice->mean_error, choice->worst_error);
    for (uint32_t layer = 0; layer < choice->layers; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            buffer_format(out, "%d", choice->in_int8[layer][product]);
        }
        buffer_format(out, "\n");
    }
    if (model->generates) { buffer_format(out, "%d\n", choice->lm_head); }
    if (buffer_ok(out)) { buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data, out->length, 0)); }
}

/* Accepts only what print_choice would print. */
static bool parse_choice(const char *text, const struct model *model, struct engine_int8 *choice)
{
    struct buffer same = {0};
    int used = 0;
    if (sscanf(text, "mean %lf worst %lf\n%n", &choice->mean_error, &choice->worst_error, &used) != 2) { return false; }
    const char *at = text + used;
    if (strlen(at) < (uint64_t)choice->layers * (ENGINE_PRODUCTS + 1) + model->generates) { return false; }
    for (uint32_t layer = 0; layer < choice->layers; layer++, at += ENGINE_PRODUCTS + 1) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            choice->in_int8[layer][product] = at[product] == '1';
        }
    }
    choice->lm_head = model->generates && *at == '1';
    print_choice(model, choice, &same);
    bool good = buffer_ok(&same) && same.length == strlen(text) && memcmp(same.data, text, same.length) == 0;
    buffer_free(&same);
    return good;
}

static void keep_choice(struct kept *kept, const struct model *model, const struct engine_int8 *choice)
{
    struct buffer text = {0};
    print_choice(model, choice, &text);
    kept_write(kept, &text);
    buffer_free(&text);
}

/* --- all of it --- */

/* Opens an engine with the choice that is kept, or with all products in both ways, and then makes the choice. */
static enum status open_with(const struct backend_ops *ops, const struct model *model,
                             const struct engine_options *options, struct kept *kept, struct engine_int8 *choice,
                             struct engine **out, struct err *err)
{
    struct engine_options chosen = *options;
    bool all = options->precision == PRECISION_INT8_ALL, known = all || parse_choice(kept->text, model, choice);
    if (all) {
        memset(choice->in_int8, true, choice->layers * sizeof *choice->in_int8);
        choice->lm_head = model->generates;
    }
    count_products(choice);
    if (known) { kept_close(kept); } /* others need not wait until this engine is open */
    chosen.int8 = known ? choice : NULL;
    TRY(engine_open_with(ops, model, &chosen, out, err));
    if (known) { return STATUS_OK; }
    enum status status = try_int8(*out, choice, err);
    if (status != STATUS_OK) {
        engine_close(*out);
        return status;
    }
    count_products(choice);
    ops->settle_int8((*out)->backend, choice);
    log_info("int8_chosen", log_str("model", model->name ? model->name : ""), log_int("products", choice->total),
             log_int("of", choice->of));
    keep_choice(kept, model, choice);
    return STATUS_OK;
}

enum status int8_open(const struct backend_ops *ops, const struct model *model, const struct engine_options *options,
                      struct engine **out, struct err *err)
{
    struct engine_int8 choice = {.layers = model->layer_count,
                                 .of = model->layer_count * ENGINE_PRODUCTS + model->generates,
                                 .mean_error = NAN,
                                 .worst_error = NAN};
    choice.in_int8 = calloc(model->layer_count, sizeof *choice.in_int8);
    if (!choice.in_int8) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u layers", model->layer_count); }
    char head[HEAD_BYTES];
    struct kept kept;
    bool keeps = options->precision == PRECISION_INT8 && model->id[0] != '\0';
    print_head(model, head);
    kept_open(&kept, keeps ? options->cache_path : "", "int8", head);
    enum status status = open_with(ops, model, options, &kept, &choice, out, err);
    kept_close(&kept);
    if (status != STATUS_OK) {
        free(choice.in_int8);
        return status;
    }
    choice.others = (*out)->backend->products;
    (*out)->int8 = choice;
    (*out)->options.int8 = NULL;
    return STATUS_OK;
}
