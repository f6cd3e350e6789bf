/* The precision "auto": the faster of two by measurement, and the measurement is kept. */
#include "harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "engine/auto_precision.h"

static const struct model model = {.vocabulary = 100,
                                   .max_tokens = 16,
                                   .layer_count = 3,
                                   .hidden = 24,
                                   .heads = 2,
                                   .intermediate_size = 48,
                                   .dim = 24};

struct kept {
    char folder[40], path[400];
};

static struct kept open_folder(void)
{
    struct kept kept = {.folder = "/tmp/sluice-precision-XXXXXX"};
    assert_non_null(mkdtemp(kept.folder));
    return kept;
}

static void close_folder(const struct kept *kept)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", kept->folder);
    assert_int_equal(system(command), 0);
}

/* Returns the number of files in the folder, and sets the path of the last. */
static unsigned count_files(struct kept *kept)
{
    DIR *listing = opendir(kept->folder);
    unsigned count = 0;
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(kept->path, sizeof kept->path, "%s/%s", kept->folder, entry->d_name);
            count++;
        }
    }
    closedir(listing);
    return count;
}

/* Chooses on a machine that computes in `native`, which the null backend plays. */
static enum precision choose(const struct kept *kept, enum precision native)
{
    const struct engine_options options = {.cache_path = kept->folder};
    enum precision chosen = PRECISION_AUTO;
    struct err err = {0};
    assert_int_equal(auto_precision(&backend_null, &model, &options, native, &chosen, &err), STATUS_OK);
    return chosen;
}

/* Replaces the times in the file by others. */
static void claim(const struct kept *kept, const char *times)
{
    struct buffer text = {0};
    struct err err;
    assert_int_equal(file_read(kept->path, 4096, &text, &err), STATUS_OK);
    char *at = strstr(text.data, "\nf32 ");
    assert_non_null(at);
    FILE *file = fopen(kept->path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s", (int)(at + 1 - text.data), text.data, times);
    assert_int_equal(fclose(file), 0);
    buffer_free(&text);
}

TEST(a_twentieth_faster_wins)
{
    assert_int_equal(auto_precision_of(100, 190), PRECISION_F32);
    assert_int_equal(auto_precision_of(100, 98), PRECISION_F32);
    assert_int_equal(auto_precision_of(100, 94), PRECISION_BF16);
    assert_int_equal(auto_precision_of(100, 20), PRECISION_BF16);
}

TEST(without_bf16_nothing_is_measured)
{
    struct kept kept = open_folder();
    assert_int_equal(choose(&kept, PRECISION_F32), PRECISION_F32);
    assert_int_equal(count_files(&kept), 0);
    close_folder(&kept);
}

TEST(what_was_measured_decides)
{
    struct kept kept = open_folder();
    (void)choose(&kept, PRECISION_BF16);
    assert_int_equal(count_files(&kept), 1);
    claim(&kept, "f32 1000000 bf16 1900000\n");
    assert_int_equal(choose(&kept, PRECISION_BF16), PRECISION_F32);
    claim(&kept, "f32 1900000 bf16 1000000\n");
    assert_int_equal(choose(&kept, PRECISION_BF16), PRECISION_BF16);
    close_folder(&kept);
}

TEST(a_damaged_file_is_measured_again)
{
    const char *const damaged[] = {
        "", "f32 1e9", "f32 0 bf16 1\n", "f32 -1 bf16 5\n", "f32 nan bf16 nan\n", "bf16 1 f32 1\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct kept kept = open_folder();
        (void)choose(&kept, PRECISION_BF16);
        assert_int_equal(count_files(&kept), 1);
        claim(&kept, damaged[i]);
        (void)choose(&kept, PRECISION_BF16);
        struct buffer text = {0};
        double f32 = 0, bf16 = 0;
        struct err err;
        assert_int_equal(file_read(kept.path, 4096, &text, &err), STATUS_OK);
        assert_int_equal(sscanf(strstr(text.data, "\nf32 "), "\nf32 %lf bf16 %lf\n", &f32, &bf16), 2);
        assert_true(f32 >= 1 && bf16 >= 1);
        buffer_free(&text);
        close_folder(&kept);
    }
}
