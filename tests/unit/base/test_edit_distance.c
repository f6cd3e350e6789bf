/* The distance between words, which finds the nearest known one. */
#include "harness.h"

#include <string.h>

#include "base/edit_distance.h"

TEST(edit_distance_counts_letters)
{
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("abc", ""), 3);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("queue", "queue"), 0);
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[199] = '\0';
    assert_int_equal(edit_distance(longer, longer), 0);
    assert_int_equal(edit_distance("", longer), 63);
}
