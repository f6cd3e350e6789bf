/* The test acts as the peer of a connection: a listening socket, raw bytes, and every way to fail. */
#include "redis/connection.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness.h"

struct stage {
    struct event_base *base;
    char dir[32], path[64];
    int listener, peer;
    struct address address;
    struct connection *connection;
    int ups, downs, answers, nulls;
    long long last;
    struct err err;
    bool close_in_answer, down_before_nulls;
    bool sentinel, master_only; /* options of the connection */
};

static void on_up(void *context)
{
    struct stage *stage = context;
    stage->ups++;
}

static void on_down(void *context, const struct err *err)
{
    struct stage *stage = context;
    stage->downs++;
    stage->err = *err;
    stage->down_before_nulls = stage->nulls == 0;
}

static void on_reply(void *context, const struct resp_value *reply)
{
    struct stage *stage = context;
    stage->answers += reply != NULL;
    stage->nulls += reply == NULL;
    if (reply) { stage->last = reply->integer; }
    if (reply && stage->close_in_answer) {
        struct connection *connection = stage->connection;
        stage->connection = NULL;
        connection_close(connection);
    }
}

static void open_connection(struct stage *stage, size_t max_bytes)
{
    struct err err;
    struct connection_options options = {
        .base = stage->base,
        .address = &stage->address,
        .sentinel = stage->sentinel,
        .master_only = stage->master_only,
        .connect_timeout_ms = 20000,
        .max_reply_bytes = max_bytes,
        .context = stage,
        .on_up = on_up,
        .on_down = on_down,
    };
    assert_int_equal(connection_open(&options, &stage->connection, &err), STATUS_OK);
    assert_int_equal(stage->ups + stage->downs, 0); /* never before it returns */
}

static int setup(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    stage->base = event_base_new();
    strcpy(stage->dir, "/tmp/sluice-connection-XXXXXX");
    assert_non_null(mkdtemp(stage->dir));
    snprintf(stage->path, sizeof stage->path, "%s/s", stage->dir);
    strcpy(to.sun_path, stage->path);
    stage->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(stage->listener, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(stage->listener, 4), 0);
    stage->peer = -1;
    stage->address.path = strdup(stage->path);
    *state = stage;
    return 0;
}

static int teardown(void **state)
{
    struct stage *stage = *state;
    connection_close(stage->connection);
    event_base_free(stage->base);
    close(stage->listener);
    if (stage->peer >= 0) { close(stage->peer); }
    unlink(stage->path);
    rmdir(stage->dir);
    address_free(&stage->address);
    free(stage);
    return 0;
}

static void turn(struct stage *stage)
{
    event_base_loop(stage->base, EVLOOP_ONCE);
}

/* Runs the event loop, which dials, until the connection arrives. */
static void accept_peer(struct stage *stage)
{
    while ((stage->peer = accept(stage->listener, NULL, NULL)) < 0) { event_base_loop(stage->base, EVLOOP_NONBLOCK); }
}

static void connect_and_accept(struct stage *stage, size_t max_bytes)
{
    open_connection(stage, max_bytes);
    while (stage->ups == 0 && stage->downs == 0) { turn(stage); }
    accept_peer(stage);
}

static void send_command(struct stage *stage, uint32_t timeout_ms)
{
    struct err err;
    const char *const words[] = {"PING"};
    assert_int_equal(connection_command(stage->connection, 1, words, NULL, timeout_ms, on_reply, stage, &err),
                     STATUS_OK);
}

static void say(struct stage *stage, const char *bytes)
{
    assert_int_equal(write(stage->peer, bytes, strlen(bytes)), strlen(bytes));
}

/* A case with a stage. */
#define STAGE_TEST(name) TEST_ON(struct stage, stage, name, setup, teardown)

STAGE_TEST(answers_come_in_order_byte_by_byte)
{
    connect_and_accept(stage, 10000);
    for (int i = 0; i < 3; i++) { send_command(stage, 20000); }
    const char *bytes = ":1\r\n:2\r\n:3\r\n";
    for (; *bytes; bytes++) {
        say(stage, (const char[]){*bytes, '\0'});
        turn(stage);
    }
    while (stage->answers < 3) { turn(stage); }
    assert_int_equal(stage->last, 3);
    assert_int_equal(stage->downs, 0);
}

static void expect_death(struct stage *stage, enum status status, int nulls)
{
    while (stage->downs == 0) { turn(stage); }
    assert_int_equal(stage->err.status, status);
    assert_int_equal(stage->downs, 1);
    assert_int_equal(stage->nulls, nulls);
    assert_true(stage->down_before_nulls);
    struct err err;
    const char *const words[] = {"PING"};
    assert_int_equal(connection_command(stage->connection, 1, words, NULL, 1000, on_reply, stage, &err),
                     STATUS_UNAVAILABLE);
}

STAGE_TEST(a_closed_peer_ends_everything_once)
{
    connect_and_accept(stage, 10000);
    send_command(stage, 20000);
    send_command(stage, 20000);
    close(stage->peer);
    stage->peer = -1;
    expect_death(stage, STATUS_UNAVAILABLE, 2);
}

STAGE_TEST(nonsense_ends_it)
{
    connect_and_accept(stage, 10000);
    send_command(stage, 20000);
    say(stage, "HTTP/1.1 400\r\n");
    expect_death(stage, STATUS_BAD_INPUT, 1);
}

STAGE_TEST(an_answer_without_question_ends_it)
{
    connect_and_accept(stage, 10000);
    say(stage, ":1\r\n");
    expect_death(stage, STATUS_BAD_INPUT, 0);
}

STAGE_TEST(an_answer_above_the_cap_ends_it)
{
    connect_and_accept(stage, 1000);
    send_command(stage, 20000);
    say(stage, "*2147483647\r\n");
    expect_death(stage, STATUS_UNSUPPORTED, 1);
}

STAGE_TEST(silence_ends_it)
{
    connect_and_accept(stage, 10000);
    send_command(stage, 600000);
    send_command(stage, 20); /* its deadline applies, although it is not the first command */
    expect_death(stage, STATUS_UNAVAILABLE, 2);
}

enum { PIECE = 20 << 10, PIECES = 25, PIECE_MS = 30, SLOW_MS = 150 };

/* An answer that keeps coming may take five times the allowed silence. */
STAGE_TEST(a_slow_answer_is_no_silence)
{
    static char piece[PIECE];
    char head[32];
    connect_and_accept(stage, PIECE * PIECES * 2);
    send_command(stage, SLOW_MS);
    memset(piece, 'x', sizeof piece);
    snprintf(head, sizeof head, "$%d\r\n", PIECE * PIECES);
    say(stage, head);
    for (int i = 0; i < PIECES; i++) {
        usleep(PIECE_MS * 1000);
        event_base_loop(stage->base, EVLOOP_NONBLOCK);
        assert_int_equal(stage->downs, 0);
        assert_int_equal(write(stage->peer, piece, sizeof piece), sizeof piece);
    }
    say(stage, "\r\n");
    while (stage->answers + stage->downs == 0) { turn(stage); }
    assert_int_equal(stage->answers, 1);
}

/* So may the peer's reading of a command, down to the last bytes, which are in the socket. */
STAGE_TEST(a_slow_request_is_no_silence)
{
    static char text[PIECE * PIECES], piece[PIECE];
    const char *const words[] = {"SET", "key", text};
    const size_t lengths[] = {3, 3, sizeof text};
    size_t left = sizeof text + 40;
    struct err err;
    connect_and_accept(stage, 10000);
    assert_int_equal(connection_command(stage->connection, 3, words, lengths, SLOW_MS, on_reply, stage, &err),
                     STATUS_OK);
    while (left > 60) {
        usleep(PIECE_MS * 1000);
        event_base_loop(stage->base, EVLOOP_NONBLOCK);
        assert_int_equal(stage->downs, 0);
        ssize_t got = read(stage->peer, piece, sizeof piece);
        assert_true(got > 0);
        left -= (size_t)got;
    }
    event_base_loop(stage->base, EVLOOP_NONBLOCK);
    say(stage, ":1\r\n");
    while (stage->answers + stage->downs == 0) { turn(stage); }
    assert_int_equal(stage->answers, 1);
}

/* A large command is sent from its own memory, between others that are copied: the bytes come in order, and none is
 * left behind when the connection ends with such a command half sent. */
TEST_WITH(a_large_command_comes_whole_and_in_turn, setup, teardown)
{
    enum { LARGE = 3 << 20 };
    struct stage *stage = *state;
    static char large[LARGE], found[2 * LARGE];
    struct err err;
    for (size_t i = 0; i < LARGE; i++) { large[i] = (char)(i % 251); }
    connect_and_accept(stage, 10000);
    for (int round = 0; round < 2; round++) {
        struct command command = {0};
        command_bytes(&command, large, LARGE);
        send_command(stage, 20000);
        assert_int_equal(connection_send_command(stage->connection, &command, 20000, on_reply, stage, &err), STATUS_OK);
        assert_null(command.buffer.data);
        send_command(stage, 20000);
        char head[64];
        size_t got = 0, head_bytes = (size_t)snprintf(head, sizeof head, "*1\r\n$4\r\nPING\r\n*1\r\n$%d\r\n", LARGE);
        size_t all = head_bytes + LARGE + strlen("\r\n*1\r\n$4\r\nPING\r\n"), wanted = round == 0 ? all : all / 2;
        while (got < wanted) {
            event_base_loop(stage->base, EVLOOP_NONBLOCK);
            ssize_t more = recv(stage->peer, found + got, wanted - got, MSG_DONTWAIT);
            got += more > 0 ? (size_t)more : 0;
        }
        assert_memory_equal(found, head, head_bytes);
        assert_memory_equal(found + head_bytes, large, got - head_bytes < LARGE ? got - head_bytes : LARGE);
        if (round == 0) { assert_memory_equal(found + all - strlen("$4\r\nPING\r\n"), "$4\r\nPING\r\n", 10); }
    }
}

/* A single byte now and then counts as silence. */
STAGE_TEST(a_drip_is_silence)
{
    connect_and_accept(stage, 10000);
    send_command(stage, SLOW_MS);
    say(stage, "$1000\r\n");
    for (int i = 0; i < 900 && stage->downs == 0; i++) {
        usleep(10000);
        event_base_loop(stage->base, EVLOOP_NONBLOCK);
        if (stage->downs == 0) { say(stage, "x"); }
    }
    assert_int_equal(stage->downs, 1);
    assert_int_equal(stage->nulls, 1);
}

STAGE_TEST(nobody_there_is_told_later)
{
    unlink(stage->path);
    open_connection(stage, 10000);
    expect_death(stage, STATUS_UNAVAILABLE, 0);
    assert_int_equal(stage->ups, 0);
}

STAGE_TEST(closing_inside_an_answer)
{
    connect_and_accept(stage, 10000);
    send_command(stage, 20000);
    send_command(stage, 20000);
    stage->close_in_answer = true;
    say(stage, ":1\r\n:2\r\n");
    while (stage->nulls == 0) { turn(stage); }
    assert_int_equal(stage->answers, 1);
    assert_int_equal(stage->downs, 0); /* no on_down after an own close */
}

/* Opens the connection, and expects it to send these bytes first. */
static void expect_login(struct stage *stage, const char *expected)
{
    char got[256] = "";
    open_connection(stage, 10000);
    accept_peer(stage);
    for (size_t at = 0; at < strlen(expected);) {
        event_base_loop(stage->base, EVLOOP_NONBLOCK);
        ssize_t count = recv(stage->peer, got + at, sizeof got - 1 - at, MSG_DONTWAIT);
        at += count > 0 ? (size_t)count : 0;
    }
    assert_string_equal(got, expected);
}

static void expect_up(struct stage *stage)
{
    while (stage->ups + stage->downs == 0) { turn(stage); }
    assert_int_equal(stage->ups, 1);
}

STAGE_TEST(a_password_is_sent_first)
{
    struct err err;
    assert_int_equal(address_set_password(&stage->address.password, "pa ss\r\n", &err), STATUS_OK);
    stage->address.db = 2;
    expect_login(stage, "*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$7\r\npa ss\r\n\r\n"
                        "*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n");
    say(stage, "+OK\r\n+OK\r\n");
    expect_up(stage);
}

STAGE_TEST(a_sentinel_gets_its_own_password_and_no_database)
{
    struct err err;
    stage->address.user = strdup("u");
    assert_int_equal(address_set_password(&stage->address.password, "of the server", &err), STATUS_OK);
    assert_int_equal(address_set_password(&stage->address.sentinel_password, "its own", &err), STATUS_OK);
    stage->address.db = 2;
    stage->sentinel = true;
    expect_login(stage, "*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$7\r\nits own\r\n");
    say(stage, "+OK\r\n");
    expect_up(stage);
}

#define ROLE "*1\r\n$4\r\nROLE\r\n"

STAGE_TEST(a_master_is_taken)
{
    stage->master_only = true;
    expect_login(stage, ROLE);
    say(stage, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    expect_up(stage);
}

static void expect_not_taken(struct stage *stage, const char *answer, enum status status, const char *words)
{
    stage->master_only = true;
    expect_login(stage, ROLE);
    say(stage, answer);
    expect_death(stage, status, 0);
    assert_int_equal(stage->ups, 0);
    assert_non_null(strstr(stage->err.message, words));
}

/* A replica, a sentinel, an odd answer, and a missing right to ask. */
TEST(what_is_no_master_is_not_taken)
{
    static const struct {
        const char *answer;
        enum status status;
        const char *words;
    } cases[] = {
        {"*5\r\n$5\r\nslave\r\n$2\r\nh2\r\n:7000\r\n$9\r\nconnected\r\n:1\r\n", STATUS_UNAVAILABLE,
         "it is a replica of h2:7000"},
        {"*2\r\n$8\r\nsentinel\r\n*0\r\n", STATUS_UNAVAILABLE, "it is not a master"},
        {":1\r\n", STATUS_UNAVAILABLE, "it is not a master"},
        {"-NOPERM this user has no permissions to run the 'role' command\r\n", STATUS_DENIED, "'role'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *stage;
        setup(&stage);
        expect_not_taken(stage, cases[i].answer, cases[i].status, cases[i].words);
        teardown(&stage);
    }
}

STAGE_TEST(a_refused_password_is_denied)
{
    struct err err;
    stage->address.user = strdup("u");
    assert_int_equal(address_set_password(&stage->address.password, "p", &err), STATUS_OK);
    open_connection(stage, 10000);
    accept_peer(stage);
    say(stage, "-WRONGPASS invalid username-password pair\r\n");
    expect_death(stage, STATUS_DENIED, 0);
    assert_int_equal(stage->ups, 0);
}
