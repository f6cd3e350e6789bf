/* Entries that are pending in a worker's name although nobody gave them to it: they are found, taken once, and never
 * confused with entries that are merely on their way. */
#include <string.h>

#include "worker_bench.h"

static struct entry_id id_of(uint64_t ms)
{
    return (struct entry_id){ms, 0};
}

/* Ids of class normal, from `first` on, one a ms. */
static struct own_list list_of(uint64_t first, uint32_t count)
{
    struct own_list list = {.counts = {[CLASS_NORMAL] = count}};
    for (uint32_t i = 0; i < count; i++) { list.ids[CLASS_NORMAL][i] = id_of(first + i); }
    return list;
}

/* Answers the next pulse, which causes a list of the entries pending in our name. */
static void ask_again(void)
{
    tick_after_ms(1000);
    while (waiting(ACTION_PULSE) > 0) { pulse((struct pulse){0}); }
    assert_int_equal(waiting(ACTION_LIST_OWN), 1);
}

/* Answers a READ_OWN with normal entries of these ids. */
static void give_own(const uint64_t *ids, size_t count, bool more)
{
    static const char text[] = "as many words as make a text so long that it has all the tokens that a row may have";
    static const struct entry_field field = {"text", 4, text, sizeof text - 1};
    struct entry entries[8];
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct entry){.class = CLASS_NORMAL, .id = id_of(ids[i]), .fields = &field, .field_count = 1};
    }
    ANSWER_ENTRIES(.source = READ_OWN, .class = CLASS_NORMAL, .entries = entries, .count = count, .more = more,
                   .last = id_of(count > 0 ? ids[count - 1] : 0));
}

static uint32_t held(void)
{
    return worker_stats(bench.worker).held;
}

WORKER_TEST(one_is_found_and_taken_as_a_suspect)
{
    ask_again();
    struct own_list list = list_of(7, 1);
    struct action asked = list_own(&list);
    assert_int_equal(asked.after[CLASS_NORMAL].ms, 0);
    assert_int_equal(waiting(ACTION_READ_OWN), 0); /* the read that is out may bring it … */
    assert_int_equal(waiting(ACTION_UNBLOCK), 1);  /* … and need not wait for more */
    read_new(0);
    struct action own = take(ACTION_READ_OWN);
    assert_int_equal(own.read.class, CLASS_NORMAL);
    assert_int_equal(own.read.count, 1);
    assert_true(own.read.after.ms == 6 && own.read.after.seq == UINT64_MAX);
    give_own((const uint64_t[]){7}, 1, true);
    assert_int_equal(held(), 1);
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 1); /* perhaps it has killed somebody */
    assert_int_equal(waiting(ACTION_LIST_OWN), 1);   /* there may be more */
}

WORKER_TEST(what_a_read_was_bringing_is_none)
{
    ask_again();
    struct own_list list = list_of(bench.next_entry + 1, 2);
    (void)list_own(&list);
    read_new(2);
    assert_int_equal(held(), 2);
    assert_int_equal(waiting(ACTION_READ_OWN), 0);
    assert_int_equal(worker_stats(bench.worker).strays, 0);
}

WORKER_TEST(what_is_held_is_none)
{
    uint64_t first = bench.next_entry + 1;
    read_new(3);
    ask_again();
    struct own_list list = list_of(first, 3);
    (void)list_own(&list);
    read_new(0);
    assert_int_equal(waiting(ACTION_READ_OWN), 0);
}

/* Another one in the answer may have been settled while the answer was on its way. */
WORKER_TEST(of_an_answer_only_those_that_were_found_are_taken)
{
    ask_again();
    struct own_list list = list_of(7, 1);
    list.ids[CLASS_NORMAL][1] = id_of(9);
    list.counts[CLASS_NORMAL] = 2;
    (void)list_own(&list);
    read_new(0);
    assert_int_equal(take(ACTION_READ_OWN).read.count, 2);
    give_own((const uint64_t[]){7, 8}, 2, true);
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(take(ACTION_READ_OWN).read.after.ms, 8); /* the other one is still to come */
    give_own(NULL, 0, false);                                 /* it has ended meanwhile */
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(waiting(ACTION_READ), 1);
}

/* However many are put there, no more are taken than there is room for. */
WORKER_TEST(they_wait_for_room)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 16 * 2); /* two of the longest */
    ask_again();
    struct own_list list = list_of(7, 4);
    (void)list_own(&list);
    read_new(0);
    assert_int_equal(take(ACTION_READ_OWN).read.count, 2);
    give_own((const uint64_t[]){7, 8}, 2, true);
    assert_int_equal(held(), 2);
    for (int second = 0; second < 10; second++) {
        tick_after_ms(1000);
        while (waiting(ACTION_PULSE) > 0) { pulse((struct pulse){0}); }
        assert_int_equal(waiting(ACTION_READ_OWN), 0);
    }
    struct request_list group = take(ACTION_RECORD_RUN).requests;
    send_requests(EVENT_RUN_RECORDED, group, false);
    prepare_all(4);
    while (waiting(ACTION_SUBMIT) > 0) { answer_batch(STATUS_OK); }
    format_all();
    settle_all();
    if (waiting(ACTION_READ) > 0) { read_new(0); }
    assert_int_equal(take(ACTION_READ_OWN).read.after.ms, 8); /* before new ones */
}

/* After a reconnect our own list is read to its end; unknown entries without room become strays, found later. */
WORKER_TEST(a_long_list_of_our_own_does_not_fill_the_memory)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 16 * 4);
    break_connection();
    connected();
    (void)take(ACTION_READ_OWN);
    give(READ_OWN, ORIGIN_OWN, 0);
    (void)take(ACTION_READ_OWN);
    give(READ_OWN, ORIGIN_OWN, 100);
    assert_in_range(held(), 1, 20);
}

/* The list after a full one continues after its last entry. While entries come and go, it begins again once it has
 * passed the entry that was newest at its beginning, or it would follow new ones for ever. */
WORKER_TEST(a_pass_begins_again_at_the_newest_entry_of_its_beginning)
{
    bench.next_entry = 100;
    read_new(40); /* 101 to 140 are held */
    ask_again();
    struct own_list list = list_of(101, OWN_LIST_MAX);
    (void)list_own(&list); /* this pass began before the read */
    ask_again();
    list = list_of(101 + OWN_LIST_MAX, OWN_LIST_MAX);
    assert_int_equal(list_own(&list).after[CLASS_NORMAL].ms, 100 + OWN_LIST_MAX);
    ask_again();
    list = list_of(101 + 2 * OWN_LIST_MAX, 40 - 2 * OWN_LIST_MAX);
    assert_int_equal(list_own(&list).after[CLASS_NORMAL].ms, 100 + 2 * OWN_LIST_MAX);
    ask_again(); /* the list was short: from the beginning, to 140 */
    list = list_of(101, OWN_LIST_MAX);
    assert_int_equal(list_own(&list).after[CLASS_NORMAL].ms, 0);
    read_new(60); /* 141 to 200 */
    ask_again();
    list = list_of(130, OWN_LIST_MAX); /* the ones between have ended: beyond 140 */
    assert_int_equal(list_own(&list).after[CLASS_NORMAL].ms, 100 + OWN_LIST_MAX);
    ask_again();
    assert_int_equal(take(ACTION_LIST_OWN).after[CLASS_NORMAL].ms, 0);
}

WORKER_TEST(a_paused_queue_asks_for_none)
{
    tick_after_ms(1000);
    (void)take(ACTION_LIST_OWN);
    pulse((struct pulse){.paused = true});
    struct own_list list = list_of(7, 1);
    send((struct event){.kind = EVENT_OWN_LISTED, .own = &list});
    if (waiting(ACTION_READ) > 0) { read_new(0); }
    assert_int_equal(waiting(ACTION_READ_OWN), 0);
    tick_after_ms(1000);
    assert_int_equal(waiting(ACTION_LIST_OWN), 0);
    pulse((struct pulse){0});
    assert_int_equal(waiting(ACTION_READ_OWN), 1);
}

/* A worker may be quiet for days; others can take them. */
WORKER_TEST(a_quiet_worker_gives_them_back)
{
    send((struct event){.kind = EVENT_QUIET});
    if (waiting(ACTION_READ) > 0) { read_new(0); }
    ask_again();
    struct own_list list = list_of(7, 1);
    (void)list_own(&list);
    (void)take(ACTION_READ_OWN);
    give_own((const uint64_t[]){7}, 1, true);
    struct action release = take(ACTION_RELEASE);
    assert_int_equal(release.requests.count, 1);
    assert_int_equal(release.requests.first->identity.entry.ms, 7);
    assert_false(release.last);
    send_requests(EVENT_RELEASED, release.requests, false);
    assert_int_equal(held(), 0);
}

/* Strays found under the old name belong to the old name. */
WORKER_TEST(a_reconnect_forgets_what_was_found)
{
    ask_again();
    struct own_list list = list_of(7, 1);
    (void)list_own(&list);
    break_connection();
    connect_and_sweep();
    assert_int_equal(waiting(ACTION_READ_OWN), 0);
    assert_int_equal(waiting(ACTION_READ), 1);
}

WORKER_TEST(a_list_that_failed_is_asked_for_again)
{
    ask_again();
    (void)take(ACTION_LIST_OWN);
    send((struct event){.kind = EVENT_OWN_LISTED, .failed = true});
    ask_again();
}

/* --- Texts that are being written: those that are no longer pending in our name are dropped. --- */

static const struct model_head writes = {.generates = true};

static struct batch *begin_text(enum request_class class)
{
    read_one(class, FIELDS("task", "generate", "prompt", "a"));
    prepare_all(1);
    if (waiting(ACTION_SUBMIT) == 0) { tick_after_ms(10); } /* it has waited for others of its class */
    return take(ACTION_SUBMIT).batch;
}

static void begin_writer(void)
{
    BEGIN_WITH(default_options(), with.rules.head = &writes, with.engine_slots = with.batches_out = 4,
               with.max_batch_rows = 1);
}

static void end_text(struct batch *batch)
{
    batch->status = STATUS_OK;
    send((struct event){.kind = EVENT_BATCH, .batch = batch});
    format_all();
    settle_all();
}

WORKER_TEST(a_text_whose_request_is_not_pending_is_dropped)
{
    begin_writer();
    struct batch *cancelled = begin_text(CLASS_NORMAL), *wanted = begin_text(CLASS_NORMAL),
                 *low = begin_text(CLASS_LOW);
    ask_again();
    struct own_list list = list_of(wanted->rows[0]->request->identity.entry.ms, 1);
    list.ids[CLASS_LOW][0] = low->rows[0]->request->identity.entry;
    list.counts[CLASS_LOW] = 1;
    (void)list_own(&list);
    assert_true(cancelled->dropped);
    assert_false(wanted->dropped);
    assert_false(low->dropped);
    end_text(cancelled);
    end_text(wanted);
    end_text(low);
}

WORKER_TEST(a_text_that_came_after_the_list_was_asked_for_is_not_dropped)
{
    begin_writer();
    ask_again();
    struct batch *text = begin_text(CLASS_NORMAL);
    struct own_list none = {.counts = {0}};
    (void)list_own(&none);
    assert_false(text->dropped);
    ask_again();
    (void)list_own(&none);
    assert_true(text->dropped);
    end_text(text);
}

WORKER_TEST(a_text_beyond_a_full_list_is_not_dropped)
{
    begin_writer();
    bench.next_entry = 2 * OWN_LIST_MAX;
    struct batch *text = begin_text(CLASS_NORMAL);
    ask_again();
    struct own_list list = list_of(1, OWN_LIST_MAX);
    (void)list_own(&list);
    assert_false(text->dropped);
    end_text(text);
}
