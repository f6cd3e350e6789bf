/* What --redis says: any bytes are refused or become an address that can be printed without its password. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "io/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), printed[ADDRESS_TEXT];
    struct address address;
    struct err err = {0};
    memcpy(text, data, size);
    text[size] = '\0';
    if (address_parse(text, &address, &err)) {
        FUZZ_CHECK(err.message[0] && !address.places && !address.path && !address.password);
    } else {
        FUZZ_CHECK((address.path != NULL) != (address.place_count > 0));
        FUZZ_CHECK(address.place_count <= ADDRESS_PLACES_MAX);
        FUZZ_CHECK(!address.master || (address.master[0] && address.place_count > 0));
        FUZZ_CHECK(!address.encrypted || !address.path);
        for (size_t i = 0; i < address.place_count; i++) {
            FUZZ_CHECK(address.places[i].host && strlen(place_print(&address.places[i], printed)) < ADDRESS_TEXT);
        }
        FUZZ_CHECK(strlen(address_print(&address, printed)) < ADDRESS_TEXT);
        address_free(&address);
    }
    free(text);
    return 0;
}
