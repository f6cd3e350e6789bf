/* Any bytes as the value of --redis: they are refused, or become an address that can be printed without its password.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "redis/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), printed[ADDRESS_TEXT];
    struct address address;
    struct err err = {0};
    memcpy(text, data, size);
    text[size] = '\0';
    if (address_parse(text, &address, &err)) {
        FUZZ_CHECK(err.message[0] && !address.endpoints && !address.path && !address.password);
    } else {
        FUZZ_CHECK((address.path != NULL) != (address.endpoint_count > 0));
        FUZZ_CHECK(address.endpoint_count <= ADDRESS_ENDPOINTS_MAX);
        FUZZ_CHECK(!address.master || (address.master[0] && address.endpoint_count > 0));
        FUZZ_CHECK(!address.encrypted || !address.path);
        for (size_t i = 0; i < address.endpoint_count; i++) {
            FUZZ_CHECK(address.endpoints[i].host &&
                       strlen(endpoint_print(&address.endpoints[i], printed)) < ADDRESS_TEXT);
        }
        FUZZ_CHECK(strlen(address_print(&address, printed)) < ADDRESS_TEXT);
        address_free(&address);
    }
    free(text);
    return 0;
}
