/* One row a code. */
#include "bulk/failure.h"

static const struct {
    const char *name, *text;
} codes[ROW_CODES] = {
    [ROW_OK] = {"ok", "it has a vector"},
    [ROW_UNREADABLE] = {"unreadable", "the file cannot be read"},
    [ROW_TOO_LARGE] = {"too_large", "longer than --max-text-bytes allows"},
    [ROW_BAD_UTF8] = {"bad_utf8", "not UTF-8"},
    [ROW_EMPTY_TEXT] = {"empty_text", "the text is empty"},
    [ROW_BAD_JSON] = {"bad_json", "not JSON"},
    [ROW_NOT_OBJECT] = {"not_object", "JSON, but not an object"},
    [ROW_BAD_CSV] = {"bad_csv", "not a record of CSV"},
    [ROW_MISSING_FIELD] = {"missing_field", "a field is missing"},
    [ROW_NOT_TEXT] = {"not_text", "the field holds no text"},
    [ROW_NON_FINITE] = {"non_finite", "its vector is not finite; try --precision f32"},
    [ROW_F16_RANGE] = {"f16_range", "its vector has a value that f16 cannot hold; try --dtype f32"},
    [ROW_REFUSED] = {"refused", "the queue answered with an error"},
};

const char *row_code_name(enum row_code code)
{
    return codes[code].name;
}

const char *row_code_text(enum row_code code)
{
    return codes[code].text;
}
