/* The shared head of every cmocka file. TEST(name) { ... } is a case; harness.c has main, which runs the cases in the
 * order in which they stand, or the one named on the command line. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEST(name) TEST_WITH(name, NULL, NULL)

/* With what is done before and after it: `setup` and `teardown` set and release *state. */
#define TEST_WITH(name, setup, teardown)                                                                               \
    static void name(void **state);                                                                                    \
    __attribute__((constructor(1000 + __COUNTER__))) static void test_add_##name(void)                                 \
    {                                                                                                                  \
        test_add((struct CMUnitTest){#name, name, setup, teardown, NULL});                                             \
    }                                                                                                                  \
    static void name(__attribute__((unused)) void **state)

/* What TEST does before main. */
void test_add(struct CMUnitTest unit);

/* The former way, for files that still list their cases. */
#define TEST_MAIN(cases)                                                                                               \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        size_t matched = argc > 1 ? 0 : 1;                                                                             \
        for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof((cases)[0]); i++)                                    \
            matched += strcmp((cases)[i].name, argv[1]) == 0;                                                          \
        if (matched == 0) {                                                                                            \
            fprintf(stderr, "no case named %s\n", argv[1]);                                                            \
            return 2;                                                                                                  \
        }                                                                                                              \
        setvbuf(stdout, NULL, _IOLBF, 0); /* a case that hangs or ends the process has its name in the output */       \
        cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);                                                             \
        return cmocka_run_group_tests(cases, NULL, NULL);                                                              \
    }

#endif
