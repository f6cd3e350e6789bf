/* A multipart body in a file, of which the first line is the Content-Type: parts are within the body, one after the
 * other, and their names are UTF-8. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *feed = size == 0 ? NULL : memchr(data, '\n', size);
    size_t head = feed ? (size_t)(feed - data) : size, body = feed ? size - head - 1 : 0;
    char type[256];
    if (head >= sizeof type) { return 0; }
    if (head > 0) { memcpy(type, data, head); }
    type[head] = '\0';
    int fd = memfd_create("body", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && (body == 0 || write(fd, feed + 1, body) == (ssize_t)body));
    struct multipart multipart;
    if (multipart_open(&multipart, type, fd, body)) {
        struct multipart_part part;
        struct err err;
        uint64_t before = 0;
        bool more = true;
        enum status status = STATUS_OK;
        while (more && (status = multipart_next(&multipart, &part, &more, &err)) == STATUS_OK && more) {
            FUZZ_CHECK(part.begin >= before && part.end >= part.begin && part.end + 2 <= body);
            FUZZ_CHECK(part.name[0] != '\0' && utf8_valid(part.name, strlen(part.name)));
            FUZZ_CHECK(utf8_valid(part.filename, strlen(part.filename)));
            before = part.end;
        }
        FUZZ_CHECK(status == STATUS_OK || status == STATUS_BAD_INPUT);
        FUZZ_CHECK(status == STATUS_OK || err.message[0] != '\0');
    }
    close(fd);
    return 0;
}
