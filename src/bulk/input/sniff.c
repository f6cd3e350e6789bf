/* Marks of kinds of files that are often given to a job by mistake. A binary file of another kind is found by bytes
 * that are not UTF-8 beside a NUL. */
#include "bulk/input/sniff.h"

#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

#define PANDAS(read)                                                                                                   \
    "python3 -c \"import pandas; pandas." read "('FILE').to_json('/dev/stdout', orient='records', lines=True)\" | "    \
    "sluice embed - --format jsonl"
#define UNPACK(command) command " FILE | sluice embed -AS"

#define DUCKDB "duckdb -c \"COPY (FROM 'FILE') TO '/dev/stdout' (FORMAT json)\" | sluice embed - --format jsonl"
#define MODEL "name it as --model, and the texts as INPUT"

static const struct mark {
    size_t at, length;
    const char *bytes;
    bool words; /* it could begin a text if no control character followed */
    const char *name, *way;
} marks[] = {
    {0, 6, "\xfd\x37zXZ\0", false, "xz", UNPACK("xzcat")},
    {4, 6, "\x31\x41\x59\x26\x53\x59", false, "bzip2", UNPACK("bzcat")},
    {4, 6, "\x17\x72\x45\x38\x50\x90", false, "bzip2", UNPACK("bzcat")}, /* an archive without content */
    {0, 4, "\x04\x22\x4d\x18", false, "lz4", UNPACK("lz4cat")},
    {0, 4, "LZIP", true, "lzip", UNPACK("lzip -dc")},
    {0, 4, "PK\3\4", false, "a zip archive",
     "unzip -p FILE | sluice embed - --format ... (an Excel file: save it as CSV)"},
    {0, 4, "PK\5\6", false, "an empty zip archive", "put texts there"},
    {0, 6, "7z\xbc\xaf\x27\x1c", false, "a 7z archive", "7z x -so FILE | sluice embed - --format ..."},
    {257, 5, "ustar", false, "a tar archive", "tar -xf FILE -C DIR, and then sluice embed DIR"},
    {0, 4, "PAR1", true, "Parquet", DUCKDB},
    {0, 4, "PARE", true, "encrypted Parquet", DUCKDB},
    {0, 8, "ARROW1\0\0", false, "Arrow (Feather)", PANDAS("read_feather")},
    {0, 4, "Obj\1", false, "Avro", "avro-tools tojson FILE | sluice embed - --format jsonl"},
    {0, 16, "SQLite format 3", false, "an SQLite database",
     "sqlite3 -json FILE 'SELECT id, text FROM docs' | sluice embed - --format jsonl"},
    {0, 8, "\x89HDF\r\n\x1a\n", false, "HDF5", PANDAS("read_hdf")},
    {0, 6, "\x93NUMPY", false, "a NumPy array", "a job reads texts; write them one a line"},
    {0, 5, "%PDF-", false, "PDF", "pdftotext FILE - | sluice embed - --format document"},
    {0, 4, "GGUF", true, "a GGUF model", MODEL},
    {0, sizeof FILE_LFS_POINTER - 1, FILE_LFS_POINTER, false, "a Git LFS pointer", "git lfs pull fetches the file"},
    {0, 2, "\xff\xfe", false, "UTF-16 text", UNPACK("iconv -f UTF-16 -t UTF-8")},
    {0, 2, "\xfe\xff", false, "UTF-16 text", UNPACK("iconv -f UTF-16 -t UTF-8")},
};

/* Looks for the fields ir_version and producer_name of a ModelProto. */
static bool is_onnx(const char *bytes, size_t length)
{
    return length >= 4 && bytes[0] == 8 && bytes[1] > 0 && bytes[1] < 32 && bytes[2] == 0x12;
}

/* Looks for a header's length, and then the header, which is JSON. */
static bool is_safetensors(const char *bytes, size_t length)
{
    return length >= 10 && memcmp(bytes + 5, "\0\0\0{\"", 5) == 0;
}

/* Looks for Latin letters as UTF-16 without a byte order mark. */
static bool is_wide(const char *bytes, size_t length)
{
    bool little = length >= 4 && bytes[0] != 0 && bytes[1] == 0 && bytes[2] != 0 && bytes[3] == 0;
    return little || (length >= 4 && bytes[0] == 0 && bytes[1] != 0 && bytes[2] == 0 && bytes[3] != 0);
}

/* A character that is cut at the end of the bytes does not count. */
static bool is_binary(const char *bytes, size_t length)
{
    size_t valid = utf8_valid_prefix(bytes, length);
    return length >= 4 && memchr(bytes, '\0', length) && valid + 4 <= length;
}

static bool has_mark(const struct mark *mark, const char *bytes, size_t length)
{
    size_t end = mark->at + mark->length;
    if (length <= end || memcmp(bytes + mark->at, mark->bytes, mark->length) != 0) { return false; }
    return !mark->words || ((unsigned char)bytes[end] < ' ' && !memchr("\t\r\n", bytes[end], 3));
}

static bool find_other(const char *bytes, size_t length, const char **name, const char **way)
{
    bool binary = is_binary(bytes, length);
    const struct {
        bool found;
        const char *name, *way;
    } others[] = {
        {binary && memcmp(bytes, "ORC", 3) == 0, "ORC", PANDAS("read_orc")},
        {is_onnx(bytes, length), "an ONNX model", MODEL},
        {is_safetensors(bytes, length), "a safetensors model", MODEL},
        {is_wide(bytes, length), "UTF-16 text without a byte order mark", "convert it to UTF-8 with iconv"},
        {binary, "a binary file", "a job reads texts: lines, JSON, CSV"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (has_mark(&marks[i], bytes, length)) {
            *name = marks[i].name;
            *way = marks[i].way;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].found) {
            *name = others[i].name;
            *way = others[i].way;
            return true;
        }
    }
    return false;
}

static size_t skip_space(const char *bytes, size_t length, size_t at)
{
    while (at < length && memchr(" \t\r\n", bytes[at], 4)) { at++; }
    return at;
}

enum sniffed sniff(const char *bytes, size_t length, const char **name, const char **way)
{
    if (find_other(bytes, length, name, way)) { return SNIFF_OTHER; }
    size_t first = skip_space(bytes, length, 0), second = skip_space(bytes, length, first + 1);
    if (second >= length) { return SNIFF_TEXT; }
    if (bytes[first] == '[') { return memchr("{\"]", bytes[second], 3) ? SNIFF_JSON_ARRAY : SNIFF_TEXT; }
    if (bytes[first] != '{') { return SNIFF_TEXT; }
    if (memchr(bytes + first, '\n', second - first)) { return SNIFF_JSON_SPREAD; }
    return bytes[second] == '"' ? SNIFF_JSON_LINE : SNIFF_TEXT;
}
