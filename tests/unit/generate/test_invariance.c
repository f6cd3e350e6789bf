/* The heart of generation: a text has the same tokens, from logits with the same bits, token by token alone, beside any
 * others, in parts of any size, after its blocks were taken away, after a beginning that another sequence has computed,
 * and with one thread or two.
 *
 * ctest: threads
 * ctest-cost: 20 */
#include "letters.h"

#include "base/random.h"
#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"

#if defined(__SANITIZE_THREAD__)
enum { SEEDS = 60 }; /* each takes ten times as long */
#else
enum { SEEDS = 300 };
#endif
enum { TEXTS = 6, LONGEST_PROMPT = 50, MOST_WRITTEN = 50 };

/* A text to write, and what the reference wrote. */
struct text {
    int32_t prompt[LONGEST_PROMPT];
    struct generate_request request;
    int32_t ids[LETTERS_POSITIONS];
    uint32_t count;
    uint64_t digests[LETTERS_POSITIONS]; /* of the logits before each written token, by its position */
};

/* The run that is watched: its generations, and the digests of their logits. */
static struct {
    struct generation *generations[TEXTS];
    uint64_t digests[TEXTS][LETTERS_POSITIONS];
} watched;

static uint64_t digest_logits(const float *logits)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < LETTERS_WORDS; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        state ^= bits;
        state = random_next(&state);
    }
    return state;
}

enum status __real_decoder_step(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count,
                                float **logits, struct err *err);
enum status __wrap_decoder_step(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count,
                                float **logits, struct err *err);

enum status __wrap_decoder_step(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count,
                                float **logits, struct err *err)
{
    enum status status = __real_decoder_step(decoder, rows, row_count, logits, err);
    const float *next = *logits;
    for (uint32_t i = 0; i < row_count && status == STATUS_OK; i++) {
        if (!rows[i].logits) { continue; }
        for (int t = 0; t < TEXTS; t++) {
            const struct generation *generation = watched.generations[t];
            if (generation && rows[i].ids - rows[i].position == generation->sequence.ids) {
                watched.digests[t][rows[i].position + rows[i].count] = digest_logits(next);
            }
        }
        next += LETTERS_WORDS;
    }
    return status;
}

/* Prompts of all lengths, some of which begin alike. */
static void make_texts(struct text *texts, uint64_t *seed)
{
    for (int t = 0; t < TEXTS; t++) {
        struct text *text = &texts[t];
        uint32_t length = 1 + (uint32_t)(random_next(seed) % LONGEST_PROMPT), same = 0;
        if (t > 0 && random_next(seed) % 2 == 0) { same = (uint32_t)(random_next(seed) % (length + 1)); }
        for (uint32_t i = 0; i < length; i++) {
            text->prompt[i] = i < same && i < texts[t - 1].request.prompt_tokens ? texts[t - 1].prompt[i]
                                                                                 : (int32_t)(random_next(seed) % 256);
        }
        text->request = (struct generate_request){
            .prompt = text->prompt,
            .prompt_tokens = length,
            .max_tokens = 1 + (uint32_t)(random_next(seed) % MOST_WRITTEN),
            .sampling = {.temperature = random_next(seed) % 3 == 0 ? 0 : 1.2,
                         .top_k = random_next(seed) % 2 ? 0 : 40,
                         .top_p = random_next(seed) % 2 ? 0 : 0.9,
                         .repetition_penalty = random_next(seed) % 2 ? 0 : 1.3,
                         .seed = random_next(seed)},
            .inside = true,
        };
    }
}

static void begin_text(struct generator *generator, const struct text *text, int which)
{
    struct err err = {0};
    if (generator_add(generator, &text->request, &watched.generations[which], &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static void end_text(struct generator *generator, int which)
{
    generation_end(generator, watched.generations[which]);
    watched.generations[which] = NULL;
}

/* The reference: each text alone, a token a step, in a generator of its own. */
static void write_references(const struct letters *letters, struct text *texts)
{
    struct generator_options options = {.blocks = 16, .steps = {.step_tokens = 1, .step_rows = 1}};
    for (int t = 0; t < TEXTS; t++) {
        struct generator *generator = letters_generator(letters, options);
        begin_text(generator, &texts[t], t);
        letters_run(generator);
        const struct sequence *sequence = &watched.generations[t]->sequence;
        memcpy(texts[t].ids, sequence->ids, sequence->count * sizeof *sequence->ids);
        memcpy(texts[t].digests, watched.digests[t], sizeof texts[t].digests);
        texts[t].count = sequence->count;
        end_text(generator, t);
        generator_close(generator);
    }
}

static void expect_reference(const struct text *text, int which, const char *how)
{
    const struct sequence *sequence = &watched.generations[which]->sequence;
    uint32_t first = text->request.prompt_tokens;
    for (uint32_t i = first; i < text->count; i++) {
        if (i >= sequence->count || watched.digests[which][i] != text->digests[i] || sequence->ids[i] != text->ids[i]) {
            fail_msg("%s: text %d differs at token %u of %u", how, which, i - first, text->count - first);
        }
    }
    assert_int_equal(sequence->count, text->count);
}

/* How often the other ways were really taken. */
static struct {
    uint32_t preempted, shared;
} taken;

/* Writes all texts in one generator, twice if `again`; they arrive over some steps. */
static void write_together(const struct letters *letters, const struct text *texts, struct generator_options options,
                           struct parallel_for *parallel, bool again, uint64_t *seed, const char *how)
{
    struct generator *generator = letters_generator(letters, options);
    if (parallel) { assert_int_equal(generator_join(generator, parallel, NULL), STATUS_OK); }
    for (int round = 0; round <= again; round++) {
        memset(watched.digests, 0, sizeof watched.digests);
        for (int t = 0; t < TEXTS; t++) {
            begin_text(generator, &texts[t], t);
            for (uint64_t steps = random_next(seed) % 4; steps > 0; steps--) {
                assert_int_equal(generator_step(generator, NULL), STATUS_OK);
            }
        }
        letters_run(generator);
        for (int t = 0; t < TEXTS; t++) {
            expect_reference(&texts[t], t, how);
            taken.preempted += watched.generations[t]->sequence.preemptions;
            taken.shared += watched.generations[t]->sequence.shared;
            end_text(generator, t);
        }
    }
    generator_close(generator);
}

TEST(a_text_is_the_same_whatever_runs_beside_it)
{
    static struct text texts[TEXTS];
    static const uint32_t chunks[] = {0, 1, 2, 3, 7, 15, 16, 17};
    struct parallel_for *parallel;
    struct letters letters = {0};
    assert_int_equal(parallel_for_open(2, &parallel, NULL), STATUS_OK);
    for (uint64_t run = 0; run < SEEDS; run++) {
        uint64_t seed = run;
        char how[64];
        if (run % 20 == 0) {
            if (letters.model) { letters_close(&letters); }
            letters = letters_open_in(run % 40 == 0 ? PRECISION_F32 : PRECISION_INT8_ALL, 1000 + run);
        }
        make_texts(texts, &seed);
        write_references(&letters, texts);
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
            snprintf(how, sizeof how, "seed %d, parts of %u", (int)run, chunks[c]);
            struct generator_options options = {.blocks = 64,
                                                .steps = {.policy = (enum steps_policy)(random_next(&seed) % 4),
                                                          .step_tokens = 8 + (uint32_t)(random_next(&seed) % 100),
                                                          .step_rows = 1 + (uint32_t)(random_next(&seed) % 8),
                                                          .chunk_tokens = chunks[c]}};
            write_together(&letters, texts, options, c % 2 ? parallel : NULL, false, &seed, how);
        }
        /* The longest text may need all of these blocks, and an average one half of them. */
        struct generator_options small = {.blocks = 7,
                                          .steps = {.step_tokens = 40, .step_rows = 8, .optimistic = true}};
        snprintf(how, sizeof how, "seed %d, a small pool", (int)run);
        write_together(&letters, texts, small, NULL, false, &seed, how);
        small.steps.share = true;
        write_together(&letters, texts, small, parallel, true, &seed, how);
        struct generator_options sharing = {.blocks = 64, .steps = {.step_tokens = 64, .step_rows = 8, .share = true}};
        snprintf(how, sizeof how, "seed %d, equal beginnings", (int)run);
        write_together(&letters, texts, sharing, NULL, true, &seed, how);
    }
    letters_close(&letters);
    parallel_for_close(parallel);
    assert_true(taken.preempted > SEEDS);
    assert_true(taken.shared > 100 * SEEDS);
}
