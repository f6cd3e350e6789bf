/* What batches cost on a GPU, kept in a file: whatever makes a pass faster or slower has a file of its own. */
#include "cuda_host_engine.h"
#include "cuda_rows.h"
#include "harness.h"

#include <stdlib.h>

#include "engine/cost.h"

/* Opens an engine with these options, and says what it finds in the folder: the first term, or -1 for nothing. */
static double recall(const char *folder, struct engine_options options, const struct cost *to_remember)
{
    static const struct memory_shape small = {60, 40, 64, 2, 1, 32};
    struct cost cost;
    struct err err = {0};
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), &options);
    const struct cost_source of = {opened.engine, opened.model, 1};
    enum status status = cost_recall(folder, &of, &cost, &err);
    assert_true(status == STATUS_OK || status == STATUS_NOT_FOUND);
    if (to_remember != NULL)
        assert_int_equal(cost_remember(folder, &of, to_remember, &err), STATUS_OK);
    cuda_opened_close(&opened);
    return status == STATUS_OK ? cost.terms[0] : -1;
}

static void another_option_has_its_own_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-cost-XXXXXX", command[64];
    const struct engine_options options[] = {
        {0},
        {.no_graphs = true},
        {.exact_gelu = true},
        {.precision = PRECISION_BF16},
        {.no_graphs = true, .exact_gelu = true},
    };
    enum { OPTIONS = sizeof options / sizeof options[0] };
    assert_non_null(mkdtemp(folder));
    cuda_host_engine_open(NULL);
    for (int i = 0; i < OPTIONS; i++) {
        struct cost cost = cost_from(i + 1, 2, 3);
        assert_true(recall(folder, options[i], &cost) == -1);
    }
    for (int i = 0; i < OPTIONS; i++)
        assert_true(recall(folder, options[i], NULL) == i + 1);
    cuda_host_engine_close();
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(another_option_has_its_own_file),
};

TEST_MAIN(cases)
