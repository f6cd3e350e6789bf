/* The file of algorithms: what it says, that nothing damaged or foreign is believed, and what it saves. */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/log.h"
#include "cuda_host.h"
#include "cuda_host_case.h"
#include "engine/cuda_gemm.h"
#include "engine/cuda_gemm_picks.h"

static const struct cuda_device h100 = {
    .name = "NVIDIA H100 80GB HBM3", .capability = 90, .driver = 13000, .cublaslt = 130100};

static const char head[] = "sluice gemm 1\ndevice NVIDIA H100 80GB HBM3\ncapability 90\ndriver 13000\n"
                           "cublaslt 130100\n";

#define ALGORITHM                                                                                                      \
    "0000000000000001000000000000000200000000000000030000000000000004"                                                 \
    "000000000000000500000000000000060000000000000007fedcba9876543210"

static struct gemm_pick pick(enum kernel_type type, enum gemm_after after, uint32_t rows)
{
    struct gemm_pick p = {{{1536, 384, type, after}, rows}, {{1, 2, 3, 4, 5, 6, 7, 0xfedcba9876543210u}}, 4096, 777};
    return p;
}

static void put(struct gemm_picks *picks, struct gemm_pick p)
{
    MUST(gemm_picks_put(picks, &p, NULL));
}

/* The body with its head and checksum, as a file. */
static void make_text(const char *body, struct buffer *out)
{
    *out = (struct buffer){0};
    buffer_string(out, head);
    buffer_string(out, body);
    buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data, out->length, 0));
}

static void picks_are_sorted_and_found(void **state)
{
    (void)state;
    struct gemm_picks picks = {0};
    for (uint32_t i = 0; i < 200; i++)
        put(&picks, pick(i % 3, i % 5, 1 + i * 7919 % 200));
    for (uint32_t i = 0; i < 200; i++) {
        struct gemm_pick p = pick(i % 3, i % 5, 1 + i * 7919 % 200);
        assert_non_null(gemm_picks_find(&picks, &p.key));
        p.key.shape.inputs = 8;
        assert_null(gemm_picks_find(&picks, &p.key));
    }
    assert_int_equal(picks.count, 200);
    struct gemm_pick again = picks.items[100];
    again.time_ns = 1;
    put(&picks, again);
    assert_int_equal(picks.count, 200);
    assert_int_equal(picks.items[100].time_ns, 1);
    for (size_t i = 1; i < picks.count; i++)
        assert_true(gemm_key_compare(&picks.items[i - 1].key, &picks.items[i].key) < 0);
    gemm_picks_free(&picks);
}

static void the_text_is_as_documented(void **state)
{
    (void)state;
    struct gemm_picks picks = {0};
    struct buffer text = {0};
    struct buffer want;
    struct gemm_pick unmeasured = pick(KERNEL_F16, GEMM_BIAS, 1024);
    unmeasured.time_ns = 0;
    put(&picks, unmeasured);
    put(&picks, pick(KERNEL_BF16, GEMM_ALONE, 8));
    put(&picks, pick(KERNEL_F16, GEMM_BIAS_GELU, 1024));
    gemm_picks_print(&picks, &h100, &text);
    make_text("f16 bias_gelu 1536 384 1024 workspace 4096 ns 777 algorithm " ALGORITHM "\n"
              "bf16 alone 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
              &want);
    assert_int_equal(text.length, want.length);
    assert_memory_equal(text.data, want.data, want.length);
    struct gemm_picks back = {0};
    MUST(gemm_picks_parse(text.data, text.length, &h100, &back, NULL));
    assert_int_equal(back.count, 2);
    struct gemm_pick p = pick(KERNEL_F16, GEMM_BIAS_GELU, 1024);
    assert_memory_equal(&back.items[0].algorithm, &p.algorithm, sizeof p.algorithm);
    assert_int_equal(gemm_key_compare(&back.items[0].key, &p.key), 0);
    assert_int_equal(back.items[0].workspace_bytes, 4096);
    assert_int_equal(back.items[0].time_ns, 777);
    gemm_picks_free(&picks);
    gemm_picks_free(&back);
    buffer_free(&text);
    buffer_free(&want);
}

static void no_damage_is_believed(void **state)
{
    (void)state;
    struct buffer text;
    struct gemm_picks out = {0};
    make_text("f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n", &text);
    for (size_t length = 0; length < text.length; length++) { /* a copy, so that a sanitizer sees a read beyond it */
        char *cut = malloc(length + 1);
        memcpy(cut, text.data, length);
        assert_int_equal(gemm_picks_parse(cut, length, &h100, &out, NULL), STATUS_BAD_INPUT);
        free(cut);
    }
    for (size_t bit = 0; bit < text.length * 8; bit++) {
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(gemm_picks_parse(text.data, text.length, &h100, &out, NULL), STATUS_BAD_INPUT);
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
    }
    MUST(gemm_picks_parse(text.data, text.length, &h100, &out, NULL));
    gemm_picks_free(&out);
    buffer_free(&text);
}

static void nothing_foreign_is_believed(void **state)
{
    (void)state;
    struct buffer text;
    struct gemm_picks out = {0};
    make_text("", &text);
    for (int what = 0; what < 5; what++) {
        struct cuda_device other = h100;
        struct err err = {0};
        other.capability += what == 0;
        other.driver += what == 1;
        other.cublaslt += what == 2;
        snprintf(other.name, sizeof other.name, "NVIDIA H100 80GB HBM%d", what == 3 ? 2 : 3);
        enum status status = gemm_picks_parse(text.data, text.length, &other, &out, &err);
        assert_int_equal(status, what == 4 ? STATUS_OK : STATUS_BAD_INPUT);
        assert_true(what == 4 || strstr(err.message, "another device") != NULL);
    }
    buffer_free(&text);
}

/* Lines that have the right checksum and are wrong nevertheless. */
static const char *const bad_lines[] = {
    "\n",
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM,
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM " \n",
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "0\n",
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm 1234\n",
    "f64 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bia 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias_ 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16  bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 0 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 -384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 2147483648 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 18446744073709551624 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 08 workspace 4096 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 8 workspace 9223372036854775808 ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 8 workspace ns 777 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 8 workspace 4096 ns 0 algorithm " ALGORITHM "\n",
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n"
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n", /* twice */
    "f16 bias 1536 384 9 workspace 4096 ns 777 algorithm " ALGORITHM "\n"
    "f16 bias 1536 384 8 workspace 4096 ns 777 algorithm " ALGORITHM "\n", /* out of order */
};

static void bad_lines_are_refused(void **state)
{
    (void)state;
    struct gemm_picks out = {0};
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        struct buffer text;
        struct err err = {0};
        make_text(bad_lines[i], &text);
        if (gemm_picks_parse(text.data, text.length, &h100, &out, &err) != STATUS_BAD_INPUT)
            fail_msg("accepted: %s", bad_lines[i]);
        assert_non_null(strstr(err.message, "line "));
        assert_int_equal(out.count, 0);
        assert_null(out.items);
        buffer_free(&text);
    }
}

/* A directory of its own for each case, removed at its end. */

struct folder {
    char path[64];
    char inner[128]; /* path/a/b, which does not exist yet */
    char said[128];  /* what was logged */
    int log;
};

static int open_folder(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/sluice-gemm-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->inner, sizeof f->inner, "%s/a/b", f->path);
    snprintf(f->said, sizeof f->said, "%s/said", f->path);
    f->log = open(f->said, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    assert_true(f->log >= 0);
    log_setup(LOG_INFO, LOG_TEXT, f->log);
    *state = f;
    return 0;
}

static int close_folder(void **state)
{
    struct folder *f = *state;
    char command[80];
    log_setup(LOG_INFO, LOG_TEXT, STDERR_FILENO);
    close(f->log);
    snprintf(command, sizeof command, "rm -r %s", f->path);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static void assert_said(struct folder *f, const char *part)
{
    char text[4096];
    ssize_t length = pread(f->log, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    if (part == NULL ? length != 0 : strstr(text, part) == NULL)
        fail_msg("logged: %s", text);
    assert_int_equal(ftruncate(f->log, 0), 0);
}

/* The one file in a directory. */
static void only_file(const char *directory, char *path, size_t size)
{
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, size, "%s/%s", directory, entry->d_name);
        count++;
    }
    closedir(listing);
    assert_int_equal(count, 1);
}

static void files_are_merged_and_replaced(void **state)
{
    struct folder *f = *state;
    struct gemm_picks first = {0};
    struct gemm_picks second = {0};
    struct gemm_picks back = {0};
    struct stat info;
    char path[512];
    MUST(gemm_picks_read(f->inner, &h100, &back, NULL));
    assert_int_equal(back.count, 0); /* there is no file */
    put(&first, pick(KERNEL_F16, GEMM_BIAS, 8));
    put(&first, pick(KERNEL_F16, GEMM_BIAS, 16));
    put(&second, pick(KERNEL_F16, GEMM_BIAS, 24));
    struct gemm_pick better = pick(KERNEL_F16, GEMM_BIAS, 16);
    better.time_ns = 5;
    put(&second, better);
    MUST(gemm_picks_write(f->inner, &h100, &first, NULL));
    MUST(stat(f->inner, &info));
    assert_int_equal(info.st_mode & 0777, 0700);
    MUST(gemm_picks_write(f->inner, &h100, &second, NULL));
    MUST(gemm_picks_read(f->inner, &h100, &back, NULL));
    assert_int_equal(back.count, 3);
    assert_int_equal(gemm_picks_find(&back, &better.key)->time_ns, 5);
    only_file(f->inner, path, sizeof path); /* and nothing beside it */
    MUST(stat(path, &info));
    assert_int_equal(info.st_mode & 0777, 0600);
    gemm_picks_free(&first);
    gemm_picks_free(&second);
    gemm_picks_free(&back);
}

static void what_cannot_be_written_is_told(void **state)
{
    struct folder *f = *state;
    struct gemm_picks picks = {0};
    struct err err = {0};
    char path[512];
    put(&picks, pick(KERNEL_F16, GEMM_BIAS, 8));
    assert_int_not_equal(gemm_picks_write(f->said, &h100, &picks, &err), STATUS_OK); /* a file, not a directory */
    assert_non_null(strstr(err.message, f->said));
    MUST(gemm_picks_write(f->inner, &h100, &picks, &err));
    only_file(f->inner, path, sizeof path);
    MUST(unlink(path));
    MUST(mkdir(path, 0700)); /* a directory where the file should be */
    assert_int_equal(gemm_picks_write(f->inner, &h100, &picks, &err), STATUS_IO);
    assert_non_null(strstr(err.message, "cannot rename"));
    only_file(f->inner, path, sizeof path); /* what was written beside it is gone */
    gemm_picks_free(&picks);
}

/* A whole process: opens, prepares and runs one product. Returns how many times it timed something. */
static uint64_t process(const char *directory, const struct cuda_host_algorithm *offer, uint32_t candidates, int driver)
{
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){.memory_bytes = 1 << 20});
    struct cuda_device device;
    struct gemm *gemm;
    struct gemm_runner *runner;
    const struct gemm_plan *plan;
    if (offer != NULL)
        cuda_host_offer(offer);
    MUST(cuda_device_look(api, 0, &device, NULL));
    device.driver = driver;
    struct gemm_options options = {api, &device, directory, candidates};
    struct kernel_queue queue = {api->cudaLaunchKernel, stream_new(api), 4, 90};
    struct gemm_shape shape = {16, 16, KERNEL_F16, GEMM_BIAS};
    void *memory[4];
    for (int i = 0; i < 4; i++)
        memory[i] = device_new(api, 512);
    struct gemm_operands operands = {.from = memory[0], .weight = memory[1], .bias = memory[2], .to = memory[3]};
    MUST(gemm_open(&options, &gemm, NULL));
    MUST(gemm_runner_open(gemm, &queue, &runner, NULL));
    MUST(gemm_prepare(runner, &shape, 16, &operands, &plan, NULL));
    MUST(gemm_run(runner, plan, &operands, NULL));
    uint64_t timings = cuda_host_calls("cudaEventElapsedTime");
    gemm_runner_close(runner);
    gemm_close(gemm);
    for (int i = 0; i < 4; i++)
        MUST(api->cudaFree(memory[i]));
    MUST(api->cudaStreamDestroy(queue.stream));
    cuda_host_close();
    return timings;
}

static void the_next_process_times_nothing(void **state)
{
    struct folder *f = *state;
    assert_true(process(f->inner, NULL, 0, 13000) > 0);
    assert_int_equal(process(f->inner, NULL, 0, 13000), 0);
    assert_true(process(f->inner, NULL, 0, 12000) > 0); /* another driver */
    assert_int_equal(process(f->inner, NULL, 0, 12000), 0);
    assert_int_equal(process(f->inner, NULL, 0, 13000), 0); /* whose file lies beside ours */
    assert_true(process("", NULL, 0, 13000) > 0);
    assert_true(process(NULL, NULL, 0, 13000) > 0);
    assert_said(f, NULL);
}

static void what_was_not_timed_is_not_remembered(void **state)
{
    struct folder *f = *state;
    assert_int_equal(process(f->inner, NULL, 1, 13000), 0);
    assert_int_equal(access(f->inner, F_OK), -1);
    assert_true(process(f->inner, NULL, 0, 13000) > 0);
}

static void a_damaged_file_is_ignored_and_replaced(void **state)
{
    struct folder *f = *state;
    char path[512];
    (void)process(f->inner, NULL, 0, 13000);
    only_file(f->inner, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "?", 1, 100), 1);
    close(fd);
    assert_true(process(f->inner, NULL, 0, 13000) > 0);
    assert_said(f, "gemm_cache_ignored");
    assert_int_equal(process(f->inner, NULL, 0, 13000), 0);
    MUST(truncate(path, 0)); /* as a power cut may leave it */
    assert_true(process(f->inner, NULL, 0, 13000) > 0);
    assert_said(f, "the checksum is not right");
    assert_int_equal(process(f->inner, NULL, 0, 13000), 0);
    assert_said(f, NULL);
}

static void an_algorithm_that_is_gone_is_found_anew(void **state)
{
    struct folder *f = *state;
    static const struct cuda_host_algorithm two[CUDA_HOST_ALGORITHMS] = {{2000, 0, 0}, {1000, 0, 0}};
    static const struct cuda_host_algorithm larger[CUDA_HOST_ALGORITHMS] = {{2000, 0, 0}, {1000, 1 << 20, 0}};
    assert_true(process(f->inner, two, 0, 13000) > 0);
    assert_int_equal(process(f->inner, two, 0, 13000), 0);
    assert_true(process(f->inner, NULL, 0, 13000) > 0); /* only the first is there */
    assert_int_equal(process(f->inner, two, 0, 13000), 0);
    char path[512];
    only_file(f->inner, path, sizeof path);
    MUST(unlink(path));
    assert_true(process(f->inner, two, 0, 13000) > 0);
    assert_true(process(f->inner, larger, 0, 13000) > 0); /* it needs more workspace than we have */
}

static void a_place_that_cannot_be_written_is_logged_once(void **state)
{
    struct folder *f = *state;
    assert_true(process(f->said, NULL, 0, 13000) > 0); /* a file where the directory should be */
    assert_said(f, "gemm_cache_not_written");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(picks_are_sorted_and_found),
    cmocka_unit_test(the_text_is_as_documented),
    cmocka_unit_test(no_damage_is_believed),
    cmocka_unit_test(nothing_foreign_is_believed),
    cmocka_unit_test(bad_lines_are_refused),
    cmocka_unit_test_setup_teardown(files_are_merged_and_replaced, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(what_cannot_be_written_is_told, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(the_next_process_times_nothing, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(what_was_not_timed_is_not_remembered, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(a_damaged_file_is_ignored_and_replaced, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(an_algorithm_that_is_gone_is_found_anew, open_folder, close_folder),
    cmocka_unit_test_setup_teardown(a_place_that_cannot_be_written_is_logged_once, open_folder, close_folder),
};

TEST_MAIN(cases)
