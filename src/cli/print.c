#include "cli/print.h"

#include "base/utf8.h"

/* Length of the printable UTF-8 sequence at the front, 0 when there is none. C1 controls (C2 80..9F) are not printable.
 */
static size_t printable(const char *bytes, size_t length)
{
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f && first != '\\';
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (size > length || !utf8_valid(bytes, size) || (first == 0xc2 && (unsigned char)bytes[1] < 0xa0))
        return 0;
    return size;
}

void print_json_string(FILE *to, const char *bytes, size_t length)
{
    putc('"', to);
    for (size_t at = 0; at < length;) {
        unsigned char c = (unsigned char)bytes[at];
        size_t size = printable(bytes + at, length - at);
        if (c == '"' || c == '\\') {
            fprintf(to, "\\%c", c);
        } else if (size > 0) {
            fwrite(bytes + at, 1, size, to);
        } else if (c == 0xc2 && at + 1 < length && ((unsigned char)bytes[at + 1] & 0xe0) == 0x80) {
            fprintf(to, "\\u%04x", (unsigned char)bytes[at + 1]);
            size = 2;
        } else {
            fprintf(to, "\\u%04x", c < 0x80 ? c : 0xfffd);
        }
        at += size > 0 ? size : 1;
    }
    putc('"', to);
}

void print_bytes(FILE *to, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t size = printable(bytes + at, length - at);
        if (size > 0) {
            fwrite(bytes + at, 1, size, to);
        } else {
            fprintf(to, "\\x%02x", (unsigned char)bytes[at]);
            size = 1;
        }
        at += size;
    }
}
