/* A name that matches nothing is a failure: a test that ran no case has not passed. */
#include "harness.h"

#include <stdlib.h>

enum { CASES_MAX = 200, SKIPPED = 77 };

static struct CMUnitTest cases[CASES_MAX];
static size_t case_count;

void test_add(struct CMUnitTest unit)
{
    if (case_count == CASES_MAX) { abort(); }
    cases[case_count++] = unit;
}

__attribute__((weak)) bool tests_can_run(void)
{
    return true;
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : NULL;
    size_t matched = 0;
    for (size_t i = 0; i < case_count; i++) { matched += !wanted || strcmp(cases[i].name, wanted) == 0; }
    if (matched == 0) {
        fprintf(stderr, "no case named %s\n", wanted ? wanted : "at all");
        return 2;
    }
    if (!tests_can_run()) {
        fprintf(stderr, "skipped: this machine cannot run it\n");
        return SKIPPED;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* the output then has the name of a case that hangs or ends the process */
    cmocka_set_test_filter(wanted);
    /* what cmocka_run_group_tests expands to, with a count of our own */
    return _cmocka_run_group_tests(argv[0], cases, case_count, NULL, NULL);
}
