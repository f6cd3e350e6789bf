/* Redis closes the connection because of a reply or an entry: how often that must happen before it counts as proof, and
 * which other losses do not count. */
#include "worker_bench.h"

enum { LARGE = 100 << 10 };

/* The calls that are out fail, and the next connection reports how the last one was lost. */
static void lose(struct bench *bench, enum loss loss)
{
    while (waiting(bench, ACTION_SETTLE) > 0) { settle(bench, true); }
    break_connection(bench);
    send(bench, (struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_now(bench), .loss = loss}});
}

/* A worker that has just sent a large reply. */
static struct bench send_large(void)
{
    static const char bytes[LARGE];
    struct bench bench = begin(default_options());
    read_new(&bench, 1);
    prepare_all(&bench, 3);
    answer_batch(&bench, STATUS_OK);
    struct request_list list = take(&bench, ACTION_FORMAT).requests;
    buffer_append(&list.first->output.reply, bytes, sizeof(bytes));
    send(&bench, (struct event){.kind = EVENT_FORMATTED, .requests = list});
    return bench;
}

static enum outcome sent(struct bench *bench, enum reply_code code)
{
    struct request seen = settle_one(bench, VERDICT_DONE);
    assert_int_equal(seen.retry.code, code);
    return seen.lifetime.outcome;
}

TEST(a_reply_is_refused_after_four_losses_of_its_connection)
{
    struct bench bench = send_large();
    for (int i = 0; i < 3; i++) { lose(&bench, LOSS_WRITER); }
    assert_int_equal(waiting(&bench, ACTION_SETTLE), 1); /* the third proof is out */
    lose(&bench, LOSS_WRITER);
    assert_int_equal(sent(&bench, CODE_TOO_LARGE), OUTCOME_ERROR);
    worker_close(bench.worker);
}

TEST(other_losses_prove_nothing)
{
    static const enum loss losses[] = {LOSS_OTHER, LOSS_READER, LOSS_RESTART};
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        struct bench bench = send_large();
        for (int j = 0; j < 20; j++) { lose(&bench, losses[i]); }
        assert_int_equal(sent(&bench, CODE_NONE), OUTCOME_DONE);
        worker_close(bench.worker);
    }
}

TEST(a_restarted_server_is_another_one)
{
    struct bench bench = send_large();
    for (int i = 0; i < 3; i++) { lose(&bench, LOSS_WRITER); }
    lose(&bench, LOSS_RESTART);
    for (int i = 0; i < 3; i++) { lose(&bench, LOSS_WRITER); }
    assert_int_equal(sent(&bench, CODE_NONE), OUTCOME_DONE);
    worker_close(bench.worker);
}

/* Answers the read of our own list that is out: the ids of the normal class are 5-0. */
static void list_ids(struct bench *bench)
{
    struct action own = take(bench, ACTION_READ_OWN);
    struct entry entry = {.class = own.read.class, .id = {5, 0}};
    assert_int_equal(own.read.own, OWN_IDS);
    size_t count = own.read.class == CLASS_NORMAL ? 1 : 0;
    send(bench,
         (struct event){.kind = EVENT_ENTRIES,
                        .entries = {.source = READ_OWN, .class = own.read.class, .entries = &entry, .count = count}});
}

TEST(an_entry_is_refused_after_three_losses_of_its_connection)
{
    struct bench bench = begin(default_options());
    lose(&bench, LOSS_READER);
    for (int i = 0; i < 3; i++) {
        list_ids(&bench); /* high */
        list_ids(&bench);
        struct action *alone = &bench.out[bench.count - 1];
        assert_int_equal(alone->kind, ACTION_READ_OWN);
        assert_int_equal(alone->read.count, 1);
        assert_true(alone->read.after.ms == 4 && alone->read.after.seq == UINT64_MAX);
        lose(&bench, LOSS_READER);
    }
    list_ids(&bench);
    list_ids(&bench);
    struct action address = take(&bench, ACTION_READ_OWN);
    assert_int_equal(address.read.own, OWN_ADDRESS);
    assert_int_equal(address.read.after.ms, 5);
    give_one(&bench, READ_OWN, (struct entry){.class = CLASS_NORMAL, .id = {5, 0}, .unread = true},
             FIELDS("id", "mine"));
    struct request seen = settle_one(&bench, VERDICT_DONE);
    assert_int_equal(seen.retry.code, CODE_TOO_LARGE);
    assert_string_equal(seen.identity.id, "mine");
    assert_non_null(strstr(seen.retry.message, "client-output-buffer-limit"));
    worker_close(bench.worker);
}
