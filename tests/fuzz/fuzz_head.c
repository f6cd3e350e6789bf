/* Any text as the config.json of a classifier: refused by name, or labels that all have a name and scorings that are
 * set. The first byte chooses the family, and whether config_sentence_transformers.json has set the score. */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "model/family.h"
#include "model/head.h"
#include "model_builder.h"

#define TEMPLATE "/tmp/fuzz_head_XXXXXX"
static char directory[] = TEMPLATE; /* one for the whole run */

static void remove_directory(void)
{
    model_file_remove(directory, "config.json");
    rmdir(directory);
}

static void check_head(const struct model *model, enum scoring set)
{
    const struct model_head *head = &model->head;
    FUZZ_CHECK(head->labels > 0 && head->classify != SCORING_UNSET);
    FUZZ_CHECK(set != SCORING_UNSET ? head->score == set : head->labels > 1 || head->score != SCORING_UNSET);
    for (uint32_t i = 0; i < head->labels; i++) { FUZZ_CHECK(head->names[i] != NULL); }
    FUZZ_CHECK(model->module_count > 0 && model->modules[model->module_count - 1].outputs == head->labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
#define FAMILY(name) &family_##name,
    static const struct family *const families[] = {
#include "model/families.inc"
    };
#undef FAMILY
    enum { FAMILIES = sizeof families / sizeof families[0] };
    static const enum scoring scores[] = {SCORING_UNSET, SCORING_SIGMOID, SCORING_NONE};
    if (size == 0) { return 0; }
    if (strcmp(directory, TEMPLATE) == 0) {
        FUZZ_CHECK(mkdtemp(directory) != NULL);
        atexit(remove_directory);
    }
    char *text = malloc(size);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    model_file_write(directory, "config.json", text);
    free(text);
    struct err err = {0};
    bool there;
    enum scoring set = scores[data[0] / FAMILIES % 3];
    struct model model = {
        .directory = directory, .family = families[data[0] % FAMILIES], .hidden = 8, .token_types = 2};
    enum status status = head_is_there(directory, "config.json", &there, &err);
    if (status == STATUS_OK) {
        model.head.score = set;
        status = head_read_config("config.json", &model, &err);
        if (status == STATUS_OK) { check_head(&model, set); }
        head_free(&model.head);
        free(model.modules);
    }
    FUZZ_CHECK(status == STATUS_OK || (err.status == status && strstr(err.message, "config.json") != NULL));
    return 0;
}
