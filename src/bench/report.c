#include "bench/report.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/json.h"
#include "engine/engine.h"

enum { NAME_WIDTH = 18, COLUMN_WIDTH = 8 };

static void end_table(struct report *report)
{
    if (report->columns) { buffer_string(&report->json, "\n  ]"); }
    report->columns = NULL;
}

/* Begins a member of the object. */
static void begin_member(struct report *report, const char *key)
{
    end_table(report);
    buffer_json(&report->json, ",\n  %s: ", key);
}

/* The processor's name from the kernel, or "". */
static void read_processor(char name[128])
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    name[0] = '\0';
    while (file && name[0] == '\0' && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) { continue; }
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(name, 128, "%s", colon + strspn(colon, ": \t"));
    }
    if (file) { fclose(file); }
}

void report_begin(struct report *report, const char *name, FILE *shown)
{
    char date[32], processor[128], kernels[64];
    struct utsname system = {0};
    time_t now = time(NULL);
    struct tm utc;
    *report = (struct report){.shown = shown};
    buffer_json(&report->json, "{\n  'bench': %s", name);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
    report_text(report, "date", date);
    read_processor(processor);
    report_text(report, "processor", processor[0] != '\0' || uname(&system) != 0 ? processor : system.machine);
    report_text(report, "kernels", engine_instruction_set(kernels));
    report_number(report, "usable_cpus", engine_default_threads(), 0);
}

void report_free(struct report *report)
{
    buffer_free(&report->json);
}

void report_text(struct report *report, const char *key, const char *value)
{
    begin_member(report, key);
    buffer_json(&report->json, "'%s'", value);
    if (report->shown) { fprintf(report->shown, "%-*s %s\n", NAME_WIDTH, key, value); }
}

void report_number(struct report *report, const char *key, double value, int decimals)
{
    begin_member(report, key);
    buffer_json(&report->json, "%.*f", decimals, value);
    if (report->shown) { fprintf(report->shown, "%-*s %.*f\n", NAME_WIDTH, key, decimals, value); }
}

/* Prints a cell: texts are aligned to the left of their column, numbers to the right. */
static void show_cell(const struct report *report, const struct column *column, const char *text)
{
    int width = (int)strlen(column->title);
    width = width < COLUMN_WIDTH ? COLUMN_WIDTH : width;
    fputs(column == report->columns ? "" : "  ", report->shown);
    fprintf(report->shown, column->decimals == REPORT_TEXT ? "%-*s" : "%*s", width, text);
}

void report_table(struct report *report, const char *key, const struct column *columns, size_t count)
{
    begin_member(report, key);
    buffer_string(&report->json, "[");
    report->columns = columns;
    report->column_count = count;
    if (!report->shown) { return; }
    putc('\n', report->shown);
    for (size_t i = 0; i < count; i++) { show_cell(report, &columns[i], columns[i].title); }
    putc('\n', report->shown);
}

void report_row(struct report *report, const char *const *texts, const double *numbers)
{
    buffer_json(&report->json, ",\n    {");
    for (size_t i = 0; i < report->column_count; i++) {
        const struct column *column = &report->columns[i];
        char number[64] = "-";
        buffer_json(&report->json, i == 0 ? "%s: " : ", %s: ", column->key);
        if (column->decimals == REPORT_TEXT) {
            buffer_json(&report->json, "'%s'", *texts);
        } else {
            buffer_json(&report->json, "%.*f", column->decimals, *numbers);
            if (isfinite(*numbers)) { snprintf(number, sizeof number, "%.*f", column->decimals, *numbers); }
        }
        if (report->shown) { show_cell(report, column, column->decimals == REPORT_TEXT ? *texts : number); }
        texts += column->decimals == REPORT_TEXT;
        numbers += column->decimals != REPORT_TEXT;
    }
    buffer_string(&report->json, "}");
    if (report->shown) {
        putc('\n', report->shown);
        fflush(report->shown);
    }
}

enum status report_end(struct report *report, const char *path, struct err *err)
{
    end_table(report);
    buffer_string(&report->json, "\n}\n");
    if (!buffer_ok(&report->json)) { return err_set(err, STATUS_NO_MEMORY, "no memory for what was measured"); }
    if (!path) { return STATUS_OK; }
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdout : fopen(path, "w");
    if (!file) { return err_set_errno(err, "cannot write %s", path); }
    bool written = fwrite(report->json.data, 1, report->json.length, file) == report->json.length;
    if ((standard ? fflush(file) : fclose(file)) != 0 || !written) {
        return err_set_errno(err, "cannot write %s", path);
    }
    return STATUS_OK;
}

enum status numbers_parse(const char *option, const char *text, int64_t least, int64_t most, struct numbers *out,
                          struct err *err)
{
    out->count = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long long number = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (!isdigit((unsigned char)*at) || errno != 0 || number < least || number > most ||
            (*end != ',' && *end != '\0')) {
            return err_set(err, STATUS_BAD_INPUT,
                           "%s must be whole numbers from %lld to %lld with commas, not \"%.80s\"", option,
                           (long long)least, (long long)most, text);
        }
        if (out->count == NUMBERS_MAX) {
            return err_set(err, STATUS_BAD_INPUT, "%s takes at most %d values", option, NUMBERS_MAX);
        }
        out->items[out->count++] = number;
        at = end;
        if (*at == '\0') { return STATUS_OK; }
    }
}

enum status price_parse(const char *text, double *out, struct err *err)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*out) || *out < 0) {
        return err_set(err, STATUS_BAD_INPUT, "--price-per-hour must be a number that is not negative, not \"%.80s\"",
                       text);
    }
    return STATUS_OK;
}

void sample_add(struct sample *sample, double value)
{
    if (sample->count == sample->capacity) {
        size_t capacity = sample->capacity == 0 ? 256 : 2 * sample->capacity;
        double *values = realloc(sample->values, capacity * sizeof *values);
        if (!values) {
            sample->broken = true;
            return;
        }
        sample->values = values;
        sample->capacity = capacity;
    }
    sample->values[sample->count++] = value;
    sample->sorted = false;
}

void sample_free(struct sample *sample)
{
    free(sample->values);
    *sample = (struct sample){0};
}

static int smaller_first(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double sample_quantile(struct sample *sample, double q)
{
    if (sample->count == 0) { return NAN; }
    if (!sample->sorted) { qsort(sample->values, sample->count, sizeof sample->values[0], smaller_first); }
    sample->sorted = true;
    size_t rank = (size_t)ceil(q * (double)sample->count);
    return sample->values[rank == 0 ? 0 : rank - 1];
}
