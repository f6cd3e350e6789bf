/* The table of held requests: which may be prepared, whatever a read has brought. */
#include "parsing.h"
#include "schedule/held.h"

static struct request *held_request(struct held *held, uint64_t sequence, size_t work_bytes)
{
    struct entry_field text = {"text", 4, "t", 1};
    struct entry entry = {.class = CLASS_LOW, .id = {1, sequence}, .fields = &text, .field_count = 1};
    struct request *request = request_parse(&rules, &entry, 0);
    assert_non_null(request);
    request->bytes += work_bytes - request->work_bytes;
    request->work_bytes = work_bytes;
    held_add(held, request);
    return request;
}

static void end_request(struct held *held, struct request *request)
{
    held_remove(held, request);
    request_free(request);
}

TEST(as_many_begin_as_their_work_has_room)
{
    struct held held;
    struct request_list list = {0};
    struct request *requests[5];
    assert_int_equal(held_open(&held, NULL), STATUS_OK);
    for (uint64_t i = 0; i < 5; i++) { request_list_push(&list, requests[i] = held_request(&held, i, 40)); }
    assert_int_equal(held_begin(&held, &list, 1, 100), 1);
    assert_int_equal(held_begin(&held, &list, 5, 100), 2); /* the first one was counted before */
    assert_int_equal(held_begin(&held, &list, 5, 100), 2);
    assert_ptr_equal(request_list_pop(&list), requests[0]);
    assert_ptr_equal(request_list_pop(&list), requests[1]);
    assert_int_equal(held_begin(&held, &list, 5, 100), 0);
    end_request(&held, requests[0]);
    assert_int_equal(held_begin(&held, &list, 5, 100), 1);
    assert_int_equal(held_begin(&held, &list, 5, 1000), 3);
    for (int i = 1; i < 5; i++) { end_request(&held, requests[i]); }
    assert_int_equal(held.sums[CLASS_LOW].work_bytes, 0);
    assert_int_equal(held.sums[CLASS_LOW].bytes, 0);
    held_close(&held);
}

TEST(one_heavier_than_all_credit_may_begin_alone)
{
    struct held held;
    struct request_list list = {0};
    assert_int_equal(held_open(&held, NULL), STATUS_OK);
    struct request *light = held_request(&held, 1, 10), *heavy = held_request(&held, 2, 5000);
    request_list_push(&list, light);
    request_list_push(&list, heavy);
    assert_int_equal(held_begin(&held, &list, 5, 100), 1);
    assert_ptr_equal(request_list_pop(&list), light);
    assert_int_equal(held_begin(&held, &list, 5, 100), 0);
    end_request(&held, light);
    assert_int_equal(held_begin(&held, &list, 5, 100), 1);
    held_close(&held); /* frees the heavy one */
}
