/* The cache directory: where it is, that it is made, and that files are replaced whole. */
#include "harness.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

TEST(the_user_s_directory_is_the_fallback)
{
    char path[FILE_PATH_BYTES];
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    setenv("HOME", "/home/me", 1);
    cache_directory("/chosen", path);
    assert_string_equal(path, "/chosen");
    cache_directory("", path);
    assert_string_equal(path, "");
    cache_directory(NULL, path);
    assert_string_equal(path, "/xdg/sluice");
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    cache_directory(NULL, path);
    assert_string_equal(path, "/home/me/.cache/sluice");
    unsetenv("HOME");
    cache_directory(NULL, path);
    assert_string_equal(path, "");
}

TEST(too_long_is_none)
{
    char path[FILE_PATH_BYTES], longest[FILE_PATH_BYTES + 1];
    struct err err;
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cache_directory(longest, path);
    assert_string_equal(path, "");
    assert_int_equal(file_path(longest + 1, "b", path, &err), STATUS_BAD_INPUT);
}

TEST(files_are_replaced_whole_in_a_directory_of_our_own)
{
    char root[] = "/tmp/sluice-cache-XXXXXX", directory[64], path[FILE_PATH_BYTES], command[64];
    struct buffer text = {0}, back = {0};
    struct stat info;
    struct err err;
    assert_non_null(mkdtemp(root));
    snprintf(directory, sizeof directory, "%s/a/b", root);
    assert_int_equal(file_path(directory, "name", path, &err), STATUS_OK);
    buffer_string(&text, "first and longer");
    assert_int_equal(cache_write(directory, "name", &text, &err), STATUS_OK);
    text.length = 5;
    assert_int_equal(cache_write(directory, "name", &text, &err), STATUS_OK);
    assert_int_equal(file_read(path, 100, &back, &err), STATUS_OK);
    assert_string_equal(back.data, "first");
    assert_int_equal(stat(directory, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    text.broken = true;
    assert_int_equal(cache_write(directory, "name", &text, &err), STATUS_NO_MEMORY);
    buffer_free(&text);
    buffer_free(&back);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* A file is in the place of the directory; a directory is in the place of the file, and no temporary file is left
 * beside it. */
TEST(what_is_in_the_way_is_told)
{
    char root[] = "/tmp/sluice-cache-XXXXXX", file[64], path[FILE_PATH_BYTES];
    struct buffer text = {0};
    struct err err;
    assert_non_null(mkdtemp(root));
    snprintf(file, sizeof file, "%s/file", root);
    buffer_string(&text, "text");
    assert_int_equal(cache_write(root, "file", &text, &err), STATUS_OK);
    assert_int_not_equal(cache_write(file, "name", &text, &err), STATUS_OK);
    assert_non_null(strstr(err.message, file));
    assert_int_equal(file_path(root, "name", path, &err), STATUS_OK);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_not_equal(cache_write(root, "name", &text, &err), STATUS_OK);
    assert_non_null(strstr(err.message, "cannot rename"));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(root), 0);
    buffer_free(&text);
}
