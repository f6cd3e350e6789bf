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
static void ask_again(struct bench *bench)
{
    tick_after_ms(bench, 1000);
    while (waiting(bench, ACTION_PULSE) > 0) { pulse(bench, (struct pulse){0}); }
    assert_int_equal(waiting(bench, ACTION_LIST_OWN), 1);
}

/* Answers a READ_OWN with normal entries of these ids. */
static void give_own(struct bench *bench, const uint64_t *ids, size_t count, bool more)
{
    static const char text[] = "as many words as make a text so long that it has all the tokens that a row may have";
    static const struct entry_field field = {"text", 4, text, sizeof text - 1};
    struct entry entries[8];
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct entry){.class = CLASS_NORMAL, .id = id_of(ids[i]), .fields = &field, .field_count = 1};
    }
    send(bench, (struct event){.kind = EVENT_ENTRIES,
                               .entries = {.source = READ_OWN,
                                           .class = CLASS_NORMAL,
                                           .entries = entries,
                                           .count = count,
                                           .more = more,
                                           .last = id_of(count > 0 ? ids[count - 1] : 0)}});
}

static uint32_t held(const struct bench *bench)
{
    return worker_stats(bench->worker).held;
}

TEST(one_is_found_and_taken_as_a_suspect)
{
    struct bench bench = begin(default_options());
    ask_again(&bench);
    struct own_list list = list_of(7, 1);
    struct action asked = list_own(&bench, &list);
    assert_int_equal(asked.after[CLASS_NORMAL].ms, 0);
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0); /* the read that is out may bring it … */
    assert_int_equal(waiting(&bench, ACTION_UNBLOCK), 1);  /* … and need not wait for more */
    read_new(&bench, 0);
    struct action own = take(&bench, ACTION_READ_OWN);
    assert_int_equal(own.read.class, CLASS_NORMAL);
    assert_int_equal(own.read.count, 1);
    assert_true(own.read.after.ms == 6 && own.read.after.seq == UINT64_MAX);
    give_own(&bench, (const uint64_t[]){7}, 1, true);
    assert_int_equal(held(&bench), 1);
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(waiting(&bench, ACTION_RECORD_RUN), 1); /* perhaps it has killed somebody */
    assert_int_equal(waiting(&bench, ACTION_LIST_OWN), 1);   /* there may be more */
    worker_close(bench.worker);
}

TEST(what_a_read_was_bringing_is_none)
{
    struct bench bench = begin(default_options());
    ask_again(&bench);
    struct own_list list = list_of(bench.next_entry + 1, 2);
    (void)list_own(&bench, &list);
    read_new(&bench, 2);
    assert_int_equal(held(&bench), 2);
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0);
    assert_int_equal(worker_stats(bench.worker).strays, 0);
    worker_close(bench.worker);
}

TEST(what_is_held_is_none)
{
    struct bench bench = begin(default_options());
    uint64_t first = bench.next_entry + 1;
    read_new(&bench, 3);
    ask_again(&bench);
    struct own_list list = list_of(first, 3);
    (void)list_own(&bench, &list);
    read_new(&bench, 0);
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0);
    worker_close(bench.worker);
}

/* Another one in the answer may have been settled while the answer was on its way. */
TEST(of_an_answer_only_those_that_were_found_are_taken)
{
    struct bench bench = begin(default_options());
    ask_again(&bench);
    struct own_list list = list_of(7, 1);
    list.ids[CLASS_NORMAL][1] = id_of(9);
    list.counts[CLASS_NORMAL] = 2;
    (void)list_own(&bench, &list);
    read_new(&bench, 0);
    assert_int_equal(take(&bench, ACTION_READ_OWN).read.count, 2);
    give_own(&bench, (const uint64_t[]){7, 8}, 2, true);
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(take(&bench, ACTION_READ_OWN).read.after.ms, 8); /* the other one is still to come */
    give_own(&bench, NULL, 0, false);                                 /* it has ended meanwhile */
    assert_int_equal(worker_stats(bench.worker).strays, 1);
    assert_int_equal(waiting(&bench, ACTION_READ), 1);
    worker_close(bench.worker);
}

/* However many are put there, no more are taken than there is room for. */
TEST(they_wait_for_room)
{
    struct worker_options options = default_options();
    options.credit_tokens = 16 * 2; /* two of the longest */
    struct bench bench = begin(options);
    ask_again(&bench);
    struct own_list list = list_of(7, 4);
    (void)list_own(&bench, &list);
    read_new(&bench, 0);
    assert_int_equal(take(&bench, ACTION_READ_OWN).read.count, 2);
    give_own(&bench, (const uint64_t[]){7, 8}, 2, true);
    assert_int_equal(held(&bench), 2);
    for (int second = 0; second < 10; second++) {
        tick_after_ms(&bench, 1000);
        while (waiting(&bench, ACTION_PULSE) > 0) { pulse(&bench, (struct pulse){0}); }
        assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0);
    }
    struct request_list group = take(&bench, ACTION_RECORD_RUN).requests;
    send(&bench, (struct event){.kind = EVENT_RUN_RECORDED, .requests = group});
    prepare_all(&bench, 4);
    while (waiting(&bench, ACTION_SUBMIT) > 0) { answer_batch(&bench, STATUS_OK); }
    format_all(&bench);
    while (waiting(&bench, ACTION_SETTLE) > 0) { settle(&bench, false); }
    if (waiting(&bench, ACTION_READ) > 0) { read_new(&bench, 0); }
    assert_int_equal(take(&bench, ACTION_READ_OWN).read.after.ms, 8); /* before new ones */
    worker_close(bench.worker);
}

/* After a reconnect our own list is read to its end; unknown entries without room become strays, found later. */
TEST(a_long_list_of_our_own_does_not_fill_the_memory)
{
    struct worker_options options = default_options();
    options.credit_tokens = 16 * 4;
    struct bench bench = begin(options);
    break_connection(&bench);
    connected(&bench);
    (void)take(&bench, ACTION_READ_OWN);
    give(&bench, READ_OWN, ORIGIN_OWN, 0);
    (void)take(&bench, ACTION_READ_OWN);
    give(&bench, READ_OWN, ORIGIN_OWN, 100);
    assert_in_range(held(&bench), 1, 20);
    worker_close(bench.worker);
}

/* The list after a full one continues after its last entry. While entries come and go, it begins again once it has
 * passed the entry that was newest at its beginning, or it would follow new ones for ever. */
TEST(a_pass_begins_again_at_the_newest_entry_of_its_beginning)
{
    struct bench bench = begin(default_options());
    bench.next_entry = 100;
    read_new(&bench, 40); /* 101 to 140 are held */
    ask_again(&bench);
    struct own_list list = list_of(101, OWN_LIST_MAX);
    (void)list_own(&bench, &list); /* this pass began before the read */
    ask_again(&bench);
    list = list_of(101 + OWN_LIST_MAX, OWN_LIST_MAX);
    assert_int_equal(list_own(&bench, &list).after[CLASS_NORMAL].ms, 100 + OWN_LIST_MAX);
    ask_again(&bench);
    list = list_of(101 + 2 * OWN_LIST_MAX, 40 - 2 * OWN_LIST_MAX);
    assert_int_equal(list_own(&bench, &list).after[CLASS_NORMAL].ms, 100 + 2 * OWN_LIST_MAX);
    ask_again(&bench); /* the list was short: from the beginning, to 140 */
    list = list_of(101, OWN_LIST_MAX);
    assert_int_equal(list_own(&bench, &list).after[CLASS_NORMAL].ms, 0);
    read_new(&bench, 60); /* 141 to 200 */
    ask_again(&bench);
    list = list_of(130, OWN_LIST_MAX); /* the ones between have ended: beyond 140 */
    assert_int_equal(list_own(&bench, &list).after[CLASS_NORMAL].ms, 100 + OWN_LIST_MAX);
    ask_again(&bench);
    assert_int_equal(take(&bench, ACTION_LIST_OWN).after[CLASS_NORMAL].ms, 0);
    worker_close(bench.worker);
}

TEST(a_paused_queue_asks_for_none)
{
    struct bench bench = begin(default_options());
    tick_after_ms(&bench, 1000);
    (void)take(&bench, ACTION_LIST_OWN);
    pulse(&bench, (struct pulse){.paused = true});
    struct own_list list = list_of(7, 1);
    send(&bench, (struct event){.kind = EVENT_OWN_LISTED, .own = &list});
    if (waiting(&bench, ACTION_READ) > 0) { read_new(&bench, 0); }
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0);
    tick_after_ms(&bench, 1000);
    assert_int_equal(waiting(&bench, ACTION_LIST_OWN), 0);
    pulse(&bench, (struct pulse){0});
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 1);
    worker_close(bench.worker);
}

/* A worker may be quiet for days; others can take them. */
TEST(a_quiet_worker_gives_them_back)
{
    struct bench bench = begin(default_options());
    send(&bench, (struct event){.kind = EVENT_QUIET});
    if (waiting(&bench, ACTION_READ) > 0) { read_new(&bench, 0); }
    ask_again(&bench);
    struct own_list list = list_of(7, 1);
    (void)list_own(&bench, &list);
    (void)take(&bench, ACTION_READ_OWN);
    give_own(&bench, (const uint64_t[]){7}, 1, true);
    struct action release = take(&bench, ACTION_RELEASE);
    assert_int_equal(release.requests.count, 1);
    assert_int_equal(release.requests.first->identity.entry.ms, 7);
    assert_false(release.last);
    send(&bench, (struct event){.kind = EVENT_RELEASED, .requests = release.requests});
    assert_int_equal(held(&bench), 0);
    worker_close(bench.worker);
}

/* Strays found under the old name belong to the old name. */
TEST(a_reconnect_forgets_what_was_found)
{
    struct bench bench = begin(default_options());
    ask_again(&bench);
    struct own_list list = list_of(7, 1);
    (void)list_own(&bench, &list);
    break_connection(&bench);
    connect_and_sweep(&bench);
    assert_int_equal(waiting(&bench, ACTION_READ_OWN), 0);
    assert_int_equal(waiting(&bench, ACTION_READ), 1);
    worker_close(bench.worker);
}

TEST(a_list_that_failed_is_asked_for_again)
{
    struct bench bench = begin(default_options());
    ask_again(&bench);
    (void)take(&bench, ACTION_LIST_OWN);
    send(&bench, (struct event){.kind = EVENT_OWN_LISTED, .failed = true});
    ask_again(&bench);
    worker_close(bench.worker);
}
