/* Redis closes the connection because of a reply or an entry: how often that must happen before it counts as proof, and
 * which other losses do not count. */
#include "worker_bench.h"

enum { LARGE = 100 << 10 };

/* The calls that are out fail, and the next connection reports how the last one was lost. */
static void lose(enum loss loss)
{
    while (waiting(ACTION_SETTLE) > 0) { settle(true); }
    break_connection();
    send((struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_now(), .loss = loss}});
}

/* A worker that has just sent a large reply. */
static void send_large(void)
{
    static const char bytes[LARGE];
    begin(default_options());
    read_and_prepare(1, 3);
    answer_batch(STATUS_OK);
    struct request_list list = take(ACTION_FORMAT).requests;
    buffer_append(&list.first->output.reply, bytes, sizeof(bytes));
    send_requests(EVENT_FORMATTED, list, false);
}

static enum outcome sent(enum reply_code code)
{
    struct request seen = settle_one(VERDICT_DONE);
    assert_int_equal(seen.retry.code, code);
    return seen.lifetime.outcome;
}

WORKER_TEST(a_reply_is_refused_after_four_losses_of_its_connection)
{
    send_large();
    for (int i = 0; i < 3; i++) { lose(LOSS_WRITER); }
    assert_int_equal(waiting(ACTION_SETTLE), 1); /* the third proof is out */
    lose(LOSS_WRITER);
    assert_int_equal(sent(CODE_TOO_LARGE), OUTCOME_ERROR);
}

WORKER_TEST(other_losses_prove_nothing)
{
    static const enum loss losses[] = {LOSS_OTHER, LOSS_READER, LOSS_RESTART};
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        send_large();
        for (int j = 0; j < 20; j++) { lose(losses[i]); }
        assert_int_equal(sent(CODE_NONE), OUTCOME_DONE);
    }
}

WORKER_TEST(a_restarted_server_is_another_one)
{
    send_large();
    for (int i = 0; i < 3; i++) { lose(LOSS_WRITER); }
    lose(LOSS_RESTART);
    for (int i = 0; i < 3; i++) { lose(LOSS_WRITER); }
    assert_int_equal(sent(CODE_NONE), OUTCOME_DONE);
}

/* Answers the read of our own list that is out: the ids of the normal class are 5-0. */
static void list_ids(void)
{
    struct action own = take(ACTION_READ_OWN);
    struct entry entry = {.class = own.read.class, .id = {5, 0}};
    assert_int_equal(own.read.own, OWN_IDS);
    size_t count = own.read.class == CLASS_NORMAL ? 1 : 0;
    ANSWER_ENTRIES(.source = READ_OWN, .class = own.read.class, .entries = &entry, .count = count);
}

WORKER_TEST(an_entry_is_refused_after_three_losses_of_its_connection)
{
    lose(LOSS_READER);
    for (int i = 0; i < 3; i++) {
        list_ids(); /* high */
        list_ids();
        struct action *alone = &bench.out[bench.count - 1];
        assert_int_equal(alone->kind, ACTION_READ_OWN);
        assert_int_equal(alone->read.count, 1);
        assert_true(alone->read.after.ms == 4 && alone->read.after.seq == UINT64_MAX);
        lose(LOSS_READER);
    }
    list_ids();
    list_ids();
    struct action address = take(ACTION_READ_OWN);
    assert_int_equal(address.read.own, OWN_ADDRESS);
    assert_int_equal(address.read.after.ms, 5);
    give_one(READ_OWN, (struct entry){.class = CLASS_NORMAL, .id = {5, 0}, .unread = true}, FIELDS("id", "mine"));
    struct request seen = settle_one(VERDICT_DONE);
    assert_int_equal(seen.retry.code, CODE_TOO_LARGE);
    assert_string_equal(seen.identity.id, "mine");
    assert_non_null(strstr(seen.retry.message, "client-output-buffer-limit"));
}
