/* Sluice as one of the engines that tools/bench/peers.py compares: it speaks the language of
 * tools/bench/peer/worker.py, so that ours stays as warm as the others and takes turns with them.
 *
 *     peer_sluice serve MATERIAL PRECISION THREADS
 *
 * MATERIAL holds model/ and loads/NAME.ids, loads/NAME.txt; max_tokens and the vectors are the model's own. Rows are
 * sorted by length and laid out before the clock runs, as for the others; nothing is padded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "peer_load.h"
#include "peer_team.h"

enum { LINE_BYTES = 4096, LOADS_MAX = 16 };

struct bench {
    const char *material;
    struct model *model;
    struct peer_team *parallel;
    struct peer_load *loads[LOADS_MAX];
    unsigned load_count, threads;
};

static struct peer_load *load_named(struct bench *bench, const char *name)
{
    for (unsigned i = 0; i < bench->load_count; i++)
        if (strcmp(peer_load_name(bench->loads[i]), name) == 0)
            return bench->loads[i];
    if (bench->load_count == LOADS_MAX)
        peer_die("more than %d loads", LOADS_MAX);
    return bench->loads[bench->load_count++] = peer_load_open(bench->material, name, bench->model->dim, bench->threads);
}

static void print_repeated(unsigned runs, uint64_t ns)
{
    printf("{\"runs\": %u, \"seconds\": %.9f}\n", runs, (double)ns / NS_PER_S);
}

/* Embeds a load again and again; with `texts` from its texts. */
static void run(struct bench *bench, const char *name, uint32_t window, uint64_t least_ns, bool texts)
{
    struct peer_load *load = load_named(bench, name);
    peer_load_lay_out(load, window);
    unsigned runs = 0;
    uint64_t begin = clock_now_ns(), now = begin;
    for (; runs == 0 || now - begin < least_ns; now = clock_now_ns(), runs++) {
        if (texts)
            peer_load_tokenize(load, bench->model, window);
        peer_team_embed(bench->parallel, load);
    }
    print_repeated(runs, now - begin);
}

static void print_each(const uint64_t *ns, unsigned count)
{
    printf("{\"ms\": [");
    for (unsigned i = 0; i < count; i++)
        printf("%s%.6f", i > 0 ? ", " : "", (double)ns[i] / NS_PER_MS);
    printf("]}\n");
}

/* Each row as a window of its own. */
static void each(struct bench *bench, const char *name, unsigned count)
{
    struct peer_load *load = load_named(bench, name);
    uint64_t *ns = peer_need(count, sizeof *ns);
    peer_load_lay_out(load, 1);
    for (unsigned i = 0; i < count; i++) {
        uint64_t begin = clock_now_ns();
        peer_team_embed_window(bench->parallel, load, i % peer_load_windows(load));
        ns[i] = clock_now_ns() - begin;
    }
    print_each(ns, count);
    free(ns);
}

static void vectors(struct bench *bench, const char *name, uint32_t window, const char *path)
{
    struct peer_load *load = load_named(bench, name);
    peer_load_lay_out(load, window);
    peer_team_embed(bench->parallel, load);
    peer_load_write(load, path);
    printf("{\"rows\": %u, \"dim\": %u}\n", peer_load_rows(load), bench->model->dim);
}

static void tokens(struct bench *bench, const char *name, uint64_t least_ns)
{
    struct peer_load *load = load_named(bench, name);
    unsigned runs = 0;
    uint64_t begin = clock_now_ns(), now = begin, count = 0;
    for (; runs == 0 || now - begin < least_ns; now = clock_now_ns(), runs++)
        count += peer_load_count_tokens(load, bench->model);
    printf("{\"runs\": %u, \"seconds\": %.9f, \"tokens\": %llu}\n", runs, (double)(now - begin) / NS_PER_S,
           (unsigned long long)count);
}

static void document(struct bench *bench, const char *name, unsigned count)
{
    struct peer_load *load = load_named(bench, name);
    uint64_t *ns = peer_need(count, sizeof *ns);
    for (unsigned i = 0; i < count; i++) {
        uint64_t begin = clock_now_ns();
        peer_load_count_tokens(load, bench->model);
        ns[i] = clock_now_ns() - begin;
    }
    print_each(ns, count);
    free(ns);
}

static void answer(struct bench *bench, char *line)
{
    const char *words[4] = {"", "", "", ""};
    char *rest = NULL;
    unsigned count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < 4; word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    unsigned long second = strtoul(words[2], NULL, 10), third = strtoul(words[3], NULL, 10);
    if (strcmp(words[0], "run") == 0 && count == 4)
        run(bench, words[1], (uint32_t)second, third * NS_PER_MS, false);
    else if (strcmp(words[0], "text") == 0 && count == 4)
        run(bench, words[1], (uint32_t)second, third * NS_PER_MS, true);
    else if (strcmp(words[0], "tune") == 0 && count == 3)
        run(bench, words[1], (uint32_t)second, 0, false); /* nothing to choose; a run warms up all the same */
    else if (strcmp(words[0], "each") == 0 && count == 3)
        each(bench, words[1], (unsigned)second);
    else if (strcmp(words[0], "vectors") == 0 && count == 4)
        vectors(bench, words[1], (uint32_t)second, words[3]);
    else if (strcmp(words[0], "tokens") == 0 && count == 3)
        tokens(bench, words[1], second * NS_PER_MS);
    else if (strcmp(words[0], "document") == 0 && count == 3)
        document(bench, words[1], (unsigned)second);
    else
        printf("{\"error\": \"no command named %s with %u words\"}\n", words[0], count);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct engine_options options = {.backend = "cpu"};
    struct engine *engine;
    struct bench bench = {0};
    char line[LINE_BYTES];
    if (argc != 5 || strcmp(argv[1], "serve") != 0) {
        fprintf(stderr, "usage: peer_sluice serve MATERIAL PRECISION THREADS\n");
        return 64;
    }
    bench.material = argv[2];
    snprintf(line, sizeof line, "%s/model", bench.material);
    peer_must(precision_parse(argv[3], &options.precision, &err), &err);
    peer_must(model_open(line, NULL, &bench.model, &err), &err);
    bench.model->read_once = true;
    peer_must(engine_open(bench.model, &options, &engine, &err), &err);
    model_release_weights(bench.model);
    bench.threads = (unsigned)strtoul(argv[4], NULL, 10);
    bench.parallel = peer_team_open(engine, bench.threads);
    struct peer_load *first = load_named(&bench, "one");
    peer_load_lay_out(first, 1);
    peer_team_embed_window(bench.parallel, first, 0);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL)
        answer(&bench, line);
    peer_team_close(bench.parallel);
    for (unsigned i = 0; i < bench.load_count; i++)
        peer_load_close(bench.loads[i]);
    engine_close(engine);
    model_close(bench.model);
    return 0;
}
