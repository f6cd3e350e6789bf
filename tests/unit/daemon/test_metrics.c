/* The text of /metrics: labels are escaped, buckets add up, unknown values have no line. */
#include "harness.h"

#include <math.h>

#include "daemon/metrics.h"

static struct buffer text;

static void write_sample(struct queue_sample *queue)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct worker_histograms *histograms = &queue->histograms;
        histograms->total[c].bounds = histograms->queue[c].bounds = histograms->prepare[c].bounds =
            histograms->window[c].bounds = histograms->compute[c].bounds = &histogram_times;
    }
    queue->histograms.batch_rows.bounds = queue->histograms.batch_tokens.bounds = &histogram_sizes;
    const struct model_sample model = {
        .queue = "q", .model = "m", .precision = "f32", .load_s = 0.25, .weight_bytes = 1e10, .int8_share = 0.25};
    const struct metrics_view view = {.process = {.version = "1.2.3", .info = 1, .cpu_s = 12.5},
                                      .queues = queue,
                                      .models = &model,
                                      .gpus = {{.number = "3", .busy = 0.5}},
                                      .queue_count = 1,
                                      .model_count = 1,
                                      .gpu_count = 1};
    buffer_free(&text);
    metrics_write(&view, &text);
    buffer_append(&text, "", 1);
    assert_true(buffer_ok(&text));
}

static void assert_line(const char *line)
{
    char whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(text.data, whole)) { fail_msg("%s is missing in\n%s", line, text.data); }
}

TEST(every_level_has_its_labels)
{
    struct queue_sample queue = {
        .queue = "q", .model = "a\"b\\c\nd\xe9", .revision = "r", .precision = "f32", .info = 1};
    queue.paused_by = "ann@web1";
    queue.paused_why = "a \"reason\"";
    queue.pause_info = 1;
    queue.counters.ended[CLASS_LOW][CODE_QUEUE_FULL] = 7;
    queue.stats.held = UINT32_MAX;
    queue.stats.busy_ns = 1500000000;
    queue.unread[CLASS_HIGH] = 3;
    write_sample(&queue);
    assert_line("sluice_requests_total{queue=\"q\",class=\"low\",code=\"queue_full\"} 7");
    assert_line("sluice_requests_total{queue=\"q\",class=\"high\",code=\"done\"} 0");
    assert_line("sluice_requests_total{queue=\"q\",class=\"low\",code=\"cancelled\"} 0");
    assert_line("sluice_held_requests{queue=\"q\"} 4294967295");
    assert_line("sluice_batch_seconds_total{queue=\"q\"} 1.5");
    assert_line("sluice_queue_unread{queue=\"q\",class=\"high\"} 3");
    assert_line("sluice_worker_info{queue=\"q\",model=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\",revision=\"r\",precision=\"f32\","
                "backend=\"\"} 1");
    assert_line("sluice_model_weight_bytes{queue=\"q\",model=\"m\",precision=\"f32\"} 10000000000");
    assert_line("sluice_model_int8_ratio{queue=\"q\",model=\"m\",precision=\"f32\"} 0.25");
    assert_line("sluice_gpu_busy_ratio{gpu=\"3\"} 0.5");
    assert_line("sluice_queue_pause_info{queue=\"q\",by=\"ann@web1\",why=\"a \\\"reason\\\"\"} 1");
    assert_line("sluice_build_info{version=\"1.2.3\"} 1");
    assert_line("process_cpu_seconds_total 12.5");
    buffer_free(&text);
}

TEST(buckets_add_up)
{
    struct queue_sample queue = {.queue = "q"};
    queue.histograms.total[CLASS_NORMAL].bounds = &histogram_times;
    histogram_add(&queue.histograms.total[CLASS_NORMAL], 250000);
    histogram_add(&queue.histograms.total[CLASS_NORMAL], 2000000);
    histogram_add(&queue.histograms.total[CLASS_NORMAL], 400000000000);
    write_sample(&queue);
    assert_line("# TYPE sluice_request_seconds histogram");
    assert_line("sluice_request_seconds_bucket{queue=\"q\",class=\"normal\",le=\"0.00025\"} 1");
    assert_line("sluice_request_seconds_bucket{queue=\"q\",class=\"normal\",le=\"0.001\"} 1");
    assert_line("sluice_request_seconds_bucket{queue=\"q\",class=\"normal\",le=\"0.0025\"} 2");
    assert_line("sluice_request_seconds_bucket{queue=\"q\",class=\"normal\",le=\"300\"} 2");
    assert_line("sluice_request_seconds_bucket{queue=\"q\",class=\"normal\",le=\"+Inf\"} 3");
    assert_line("sluice_request_seconds_sum{queue=\"q\",class=\"normal\"} 400.00225");
    assert_line("sluice_request_seconds_count{queue=\"q\",class=\"normal\"} 3");
    buffer_free(&text);
}

TEST(what_is_not_known_has_no_line)
{
    struct queue_sample queue = {.queue = "q", .later = NAN, .unread = {NAN, NAN, NAN}, .pause_info = NAN};
    write_sample(&queue);
    assert_null(strstr(text.data, "\nsluice_queue_pause_info{"));
    assert_null(strstr(text.data, "\nsluice_queue_later{"));
    assert_null(strstr(text.data, "\nsluice_queue_unread{"));
    assert_non_null(strstr(text.data, "\n# TYPE sluice_queue_later gauge\n"));
    assert_line("sluice_queue_pending{queue=\"q\",class=\"high\"} 0");
    buffer_free(&text);
}
