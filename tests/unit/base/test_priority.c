/* What a thread becomes that runs in spare time: it alone, and so that its core counts as idle. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>

#include "base/priority.h"

static void *run_spare(void *context)
{
    priority_spare();
    *(int *)context = sched_getscheduler(0);
    return NULL;
}

static void spare_time_is_the_calling_thread_s(void **state)
{
    (void)state;
    pthread_t thread;
    int policy = -1, before = sched_getscheduler(0);
    assert_int_equal(pthread_create(&thread, NULL, run_spare, &policy), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(policy, SCHED_IDLE);
    assert_int_equal(sched_getscheduler(0), before);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(spare_time_is_the_calling_thread_s),
};

TEST_MAIN(cases)
