/* Addresses that --redis accepts and refuses; no password is ever printed. */
#include "redis/address.h"

#include "harness.h"

static void expect(const char *text, const char *path, const char *host, unsigned port, unsigned db, const char *user,
                   const char *password)
{
    struct address address;
    struct err err = {0};
    if (address_parse(text, &address, &err)) { fail_msg("%s: %s", text, err.message); }
    assert_int_equal(address.endpoint_count, host ? 1 : 0);
    const char *got[] = {address.path, host ? address.endpoints[0].host : NULL, address.user, address.password};
    const char *wanted[] = {path, host, user, password};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(got[i] == NULL, wanted[i] == NULL);
        if (wanted[i]) { assert_string_equal(got[i], wanted[i]); }
    }
    assert_int_equal(host ? address.endpoints[0].port : 0, port);
    assert_int_equal(address.db, db);
    assert_false(address.encrypted);
    assert_false(address_is_plural(&address));
    assert_null(address.master);
    address_free(&address);
}

TEST(unix_sockets)
{
    expect("/run/redis.sock", "/run/redis.sock", NULL, 0, 0, NULL, NULL);
    expect("./redis.sock", "./redis.sock", NULL, 0, 0, NULL, NULL);
    expect("unix:/run/redis.sock", "/run/redis.sock", NULL, 0, 0, NULL, NULL);
    expect("unix:///run/redis.sock", "/run/redis.sock", NULL, 0, 0, NULL, NULL);
    expect("redis+unix:///run/redis.sock", "/run/redis.sock", NULL, 0, 0, NULL, NULL);
    expect("redis+unix://u:p@/run/a%20b.sock?db=3", "/run/a b.sock", NULL, 0, 3, "u", "p");
}

TEST(hosts)
{
    expect("redis://localhost", NULL, "localhost", 6379, 0, NULL, NULL);
    expect("redis://localhost/", NULL, "localhost", 6379, 0, NULL, NULL);
    expect("redis://10.0.0.1:7000/12", NULL, "10.0.0.1", 7000, 12, NULL, NULL);
    expect("redis://[::1]:7000/1", NULL, "::1", 7000, 1, NULL, NULL);
    expect("redis://[fe80::1%25eth0]", NULL, "fe80::1%eth0", 6379, 0, NULL, NULL);
}

TEST(logins)
{
    expect("redis://user:pass@h", NULL, "h", 6379, 0, "user", "pass");
    expect("redis://:pass@h", NULL, "h", 6379, 0, NULL, "pass");
    expect("redis://user@h", NULL, "h", 6379, 0, "user", NULL);
    expect("redis://u%3As%40r:p%2Fa%3As%40s%25@h:1", NULL, "h", 1, 0, "u:s@r", "p/a:s@s%");
    expect("redis://u:p@ss@h", NULL, "h", 6379, 0, "u", "p@ss");
}

TEST(several_servers)
{
    struct address address;
    struct err err;
    assert_int_equal(address_parse("redis://u:p,q@a,b:7000,[::1]:7001/2", &address, &err), STATUS_OK);
    assert_true(address_is_plural(&address));
    assert_int_equal(address.endpoint_count, 3);
    assert_string_equal(address.endpoints[0].host, "a");
    assert_int_equal(address.endpoints[0].port, 6379);
    assert_string_equal(address.endpoints[1].host, "b");
    assert_int_equal(address.endpoints[1].port, 7000);
    assert_string_equal(address.endpoints[2].host, "::1");
    assert_int_equal(address.endpoints[2].port, 7001);
    assert_string_equal(address.password, "p,q");
    assert_int_equal(address.db, 2);
    address_free(&address);
}

TEST(sentinels)
{
    struct address address;
    struct err err;
    assert_int_equal(address_parse("rediss+sentinel://u:p@a,b:7000/my%20master/4", &address, &err), STATUS_OK);
    assert_true(address_is_plural(&address));
    assert_true(address.encrypted);
    assert_int_equal(address.endpoint_count, 2);
    assert_int_equal(address.endpoints[0].port, 26379);
    assert_int_equal(address.endpoints[1].port, 7000);
    assert_string_equal(address.master, "my master");
    assert_string_equal(address.user, "u");
    assert_int_equal(address.db, 4);
    assert_int_equal(address_set_password(&address.sentinel_password, "one", &err), STATUS_OK);
    assert_int_equal(address_set_password(&address.sentinel_password, "two", &err), STATUS_OK);
    assert_string_equal(address.sentinel_password, "two");
    assert_string_equal(address.password, "p");
    address_free(&address);
    assert_null(address.sentinel_password);

    assert_int_equal(address_parse("redis+sentinel://a/m", &address, &err), STATUS_OK);
    assert_true(address_is_plural(&address)); /* even with one sentinel, it must be asked */
    assert_false(address.encrypted);
    address_free(&address);
}

TEST(refused)
{
    static const struct {
        const char *text;
        enum status status;
        const char *says;
    } cases[] = {
        {"", STATUS_BAD_INPUT, "empty"},
        {"localhost", STATUS_BAD_INPUT, "redis://host:port"},
        {"localhost:6379", STATUS_BAD_INPUT, "redis://host:port"},
        {"redis://", STATUS_BAD_INPUT, "no host"},
        {"redis://:6379", STATUS_BAD_INPUT, "no host"},
        {"redis://h:0x1", STATUS_BAD_INPUT, "port"},
        {"redis://h:65536", STATUS_BAD_INPUT, "port"},
        {"redis://h:", STATUS_BAD_INPUT, "port"},
        {"redis://h/x", STATUS_BAD_INPUT, "database"},
        {"redis://h/-1", STATUS_BAD_INPUT, "database"},
        {"redis://h/99999999999", STATUS_BAD_INPUT, "database"},
        {"redis://h?db=1", STATUS_BAD_INPUT, "DATABASE"},
        {"redis://[::1", STATUS_BAD_INPUT, "bracket"},
        {"redis://[::1]x", STATUS_BAD_INPUT, "bracket"},
        {"redis://u:secret%zz@h", STATUS_BAD_INPUT, "hex"},
        {"redis://u:secret%2@h", STATUS_BAD_INPUT, "hex"},
        {"redis://u:secret%00@h", STATUS_BAD_INPUT, "hex"},
        {"http://h", STATUS_BAD_INPUT, "scheme"},
        {"redis+unix://run/redis.sock", STATUS_BAD_INPUT, "absolute"},
        {"redis+unix:///a?x=1", STATUS_BAD_INPUT, "?db="},
        {"sentinel://h", STATUS_BAD_INPUT, "redis+sentinel://"},
        {"redis+sentinel://h", STATUS_BAD_INPUT, "name of the master"},
        {"redis+sentinel://h/", STATUS_BAD_INPUT, "name of the master"},
        {"redis+sentinel:///m", STATUS_BAD_INPUT, "no host"},
        {"redis+sentinel://u:secret@h/m/x", STATUS_BAD_INPUT, "database"},
        {"redis+sentinel://h/m?db=1", STATUS_BAD_INPUT, "DATABASE"},
        {"rediss://", STATUS_BAD_INPUT, "no host"},
        {"redis://a,", STATUS_BAD_INPUT, "no host"},
        {"redis://,a", STATUS_BAD_INPUT, "no host"},
        {"redis://u:secret@a:1,,b:2", STATUS_BAD_INPUT, "no host"},
        {"redis://a:1,b:x", STATUS_BAD_INPUT, "port"},
        {"redis://a,[::1", STATUS_BAD_INPUT, "bracket"},
        {"redis://0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", STATUS_BAD_INPUT, "more than 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct address address;
        struct err err = {0};
        if (address_parse(cases[i].text, &address, &err) != cases[i].status || !strstr(err.message, cases[i].says)) {
            fail_msg("%s: status %d, \"%s\"", cases[i].text, err.status, err.message);
        }
        assert_null(strstr(err.message, "secret"));
        assert_null(address.endpoints);
        assert_null(address.password);
    }
}

TEST(printed_without_password)
{
    static const struct {
        const char *text, *printed;
    } cases[] = {
        {"/run/redis.sock", "/run/redis.sock"},
        {"redis+unix://u:secret@/run/r.sock", "/run/r.sock (with login)"},
        {"redis://h", "redis://h:6379"},
        {"redis://u:secret@h:1/2", "redis://u:***@h:1/2"},
        {"redis://:secret@[::1]", "redis://:***@[::1]:6379"},
        {"rediss://h/1", "rediss://h:6379/1"},
        {"redis://u:secret@a,[::1]:2,c:3/1", "redis://u:***@a:6379,[::1]:2,c:3/1"},
        {"redis+sentinel://u:secret@a,b:2/m", "redis+sentinel://u:***@a:26379,b:2/m"},
        {"rediss+sentinel://a/m/3", "rediss+sentinel://a:26379/m/3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct address address;
        struct err err;
        char text[ADDRESS_TEXT];
        assert_int_equal(address_parse(cases[i].text, &address, &err), STATUS_OK);
        assert_string_equal(address_print(&address, text), cases[i].printed);
        address_free(&address);
    }
}

TEST(long_addresses_are_cut_when_printed)
{
    char text[2000] = "redis://", printed[ADDRESS_TEXT];
    struct address address;
    struct err err;
    memset(text + 8, 'h', 1000);
    strcpy(text + 1008, "/5");
    assert_int_equal(address_parse(text, &address, &err), STATUS_OK);
    assert_int_equal(strlen(address_print(&address, printed)), ADDRESS_TEXT - 1);
    address_free(&address);
}

TEST(a_password_is_replaced)
{
    struct address address;
    struct err err;
    assert_int_equal(address_parse("redis://u:one@h", &address, &err), STATUS_OK);
    assert_int_equal(address_set_password(&address.password, "two", &err), STATUS_OK);
    assert_string_equal(address.user, "u");
    assert_string_equal(address.password, "two");
    address_free(&address);
    assert_null(address.password);
}
