/* Written so that what is accepted is what is printed: no spaces, no signs, no empty places. */
#include "serve/device_list.h"

#include <string.h>

enum { NUMBER_DIGITS = 4 };

/* Takes a number at *text and moves it behind. */
static bool take_number(const char **text, uint32_t *number)
{
    size_t digits = strspn(*text, "0123456789");
    *number = 0;
    for (size_t i = 0; i < digits && i < NUMBER_DIGITS; i++)
        *number = *number * 10 + (uint32_t)((*text)[i] - '0');
    *text += digits;
    return digits >= 1 && digits <= NUMBER_DIGITS;
}

bool device_list_parse(const char *text, struct device_list *list)
{
    *list = (struct device_list){.all = strcmp(text, "all") == 0};
    if (list->all)
        return true;
    for (;; text++) {
        if (list->count == DEVICES_MAX || !take_number(&text, &list->numbers[list->count]))
            return false;
        list->count++;
        if (*text == '\0')
            return true;
        if (*text != ',')
            return false;
    }
}
