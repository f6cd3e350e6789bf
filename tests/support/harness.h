/* The shared head of every cmocka file. TEST(name) { ... } is a case; harness.c has main, which runs the cases in the
 * order of the file, or the one named on the command line. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEST(name) TEST_WITH(name, NULL, NULL)

/* A case with functions before and after it: `setup` and `teardown` set and release *state. */
#define TEST_WITH(name, setup, teardown)                                                                               \
    static void name(void **state);                                                                                    \
    __attribute__((constructor(1000 + __COUNTER__))) static void test_add_##name(void)                                 \
    {                                                                                                                  \
        test_add((struct CMUnitTest){#name, name, setup, teardown, NULL});                                             \
    }                                                                                                                  \
    static void name(__attribute__((unused)) void **state)

/* The same, and the case has *state as a pointer to `type`, named `object`. */
#define TEST_ON(type, object, name, setup, teardown)                                                                   \
    static void name##_on(type *object);                                                                               \
    TEST_WITH(name, setup, teardown)                                                                                   \
    {                                                                                                                  \
        name##_on(*state);                                                                                             \
    }                                                                                                                  \
    static void name##_on(type *object)

/* Defined by a file whose cases need something that a machine may lack; if it returns false, main runs no case and ends
 * with 77, which CTest counts as skipped. */
bool tests_can_run(void);

/* Registers a case; TEST calls it before main. */
void test_add(struct CMUnitTest unit);

#endif
