/* Host names, with a getaddrinfo of our own that hangs until the test ends it.
 *
 * ctest: threads */
#include "redis/dial.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <event2/event.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "redis/connection.h"

/* --- The name service --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hanging;
static int asked; /* lookups so far */

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int real(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    getaddrinfo_fn *function;
    *(void **)&function = dlsym(RTLD_NEXT, "getaddrinfo");
    return function(host, port, hints, out);
}

/* `one` is 127.0.0.1, `two` is 127.0.0.2 and then 127.0.0.1; other names are unknown. Numeric addresses are real. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    if (hints->ai_flags & AI_NUMERICHOST) { return real(host, port, hints, out); }
    pthread_mutex_lock(&lock);
    asked++;
    pthread_cond_broadcast(&changed);
    while (hanging) { pthread_cond_wait(&changed, &lock); }
    pthread_mutex_unlock(&lock);
    if (strcmp(host, "one") == 0) { return real("127.0.0.1", port, hints, out); }
    if (strcmp(host, "two") == 0) {
        int first = real("127.0.0.2", port, hints, out);
        return first ? first : real("127.0.0.1", port, hints, &(*out)->ai_next);
    }
    return EAI_NONAME;
}

static void hang(bool on)
{
    pthread_mutex_lock(&lock);
    hanging = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_asked(int count)
{
    pthread_mutex_lock(&lock);
    while (asked < count) { pthread_cond_wait(&changed, &lock); }
    pthread_mutex_unlock(&lock);
}

/* --- The stage ---------------------------------------------------------------------------------------------------- */

struct stage {
    struct event_base *base;
    struct resolver *resolver;
    struct lookup *lookup;
    int answers, ticks;
    char host[INET_ADDRSTRLEN];
    struct err err;
};

static int setup(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct err err;
    asked = 0;
    stage->base = event_base_new();
    assert_int_equal(resolver_open(stage->base, &stage->resolver, &err), STATUS_OK);
    *state = stage;
    return 0;
}

static int teardown(void **state)
{
    struct stage *stage = *state;
    hang(false);
    lookup_close(stage->lookup);
    resolver_close(stage->resolver);
    event_base_free(stage->base);
    free(stage);
    return 0;
}

static void on_done(void *context, struct addrinfo *found, const struct err *err)
{
    struct stage *stage = context;
    assert_int_equal(found == NULL, err != NULL);
    stage->answers++;
    if (found) {
        const struct sockaddr_in *to = (const struct sockaddr_in *)(const void *)found->ai_addr;
        inet_ntop(AF_INET, &to->sin_addr, stage->host, sizeof stage->host);
        freeaddrinfo(found);
    } else {
        stage->err = *err;
    }
    lookup_close(stage->lookup);
    stage->lookup = NULL;
}

static void look_up(struct stage *stage, const char *host)
{
    struct err err;
    assert_int_equal(lookup_open(stage->resolver, host, 6379, on_done, stage, &stage->lookup, &err), STATUS_OK);
}

static void wait_answer(struct stage *stage)
{
    int before = stage->answers;
    while (stage->answers == before) { event_base_loop(stage->base, EVLOOP_ONCE); }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct stage *stage = context;
    (void)fd;
    (void)what;
    stage->ticks++;
}

/* --- Cases -------------------------------------------------------------------------------------------------------- */

/* A case with a stage. */
#define STAGE_TEST(name) TEST_ON(struct stage, stage, name, setup, teardown)

STAGE_TEST(a_name_is_looked_up)
{
    look_up(stage, "one");
    wait_answer(stage);
    assert_string_equal(stage->host, "127.0.0.1");
}

STAGE_TEST(an_unknown_name_is_said_by_name)
{
    look_up(stage, "nowhere.example");
    wait_answer(stage);
    assert_int_equal(stage->err.status, STATUS_UNAVAILABLE);
    assert_non_null(strstr(stage->err.message, "nowhere.example: "));
}

STAGE_TEST(the_loop_runs_while_the_name_service_hangs)
{
    struct event *tick = event_new(stage->base, -1, EV_PERSIST, on_tick, stage);
    hang(true);
    look_up(stage, "one");
    wait_asked(1);
    event_add(tick, &(struct timeval){.tv_usec = 100});
    while (stage->ticks < 100) { event_base_loop(stage->base, EVLOOP_ONCE); }
    assert_int_equal(stage->answers, 0);
    hang(false);
    wait_answer(stage);
    assert_string_equal(stage->host, "127.0.0.1");
    event_free(tick);
}

STAGE_TEST(a_closed_lookup_stays_silent)
{
    hang(true);
    look_up(stage, "nowhere.example");
    wait_asked(1);
    lookup_close(stage->lookup);
    look_up(stage, "also-nowhere.example"); /* waits after it and is never looked up */
    lookup_close(stage->lookup);
    look_up(stage, "one");
    hang(false);
    wait_answer(stage);
    assert_string_equal(stage->host, "127.0.0.1");
    assert_int_equal(stage->answers, 1);
    assert_int_equal(asked, 2);
}

STAGE_TEST(too_many_hanging_lookups_are_refused)
{
    struct err err = {0};
    hang(true);
    int count = 0;
    while (lookup_open(stage->resolver, "one", 6379, on_done, stage, &stage->lookup, &err) == STATUS_OK) {
        lookup_close(stage->lookup);
        assert_true(++count < 1000);
    }
    stage->lookup = NULL;
    assert_int_equal(err.status, STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.message, "one: the name service does not answer"));
    hang(false);
    do { /* until the first comes back */
        event_base_loop(stage->base, EVLOOP_ONCE);
    } while (lookup_open(stage->resolver, "one", 6379, on_done, stage, &stage->lookup, &err) != STATUS_OK);
    wait_answer(stage);
    assert_int_equal(stage->answers, 1);
}

STAGE_TEST(closing_does_not_wait_for_a_hanging_lookup)
{
    struct err err;
    hang(true);
    look_up(stage, "one");
    wait_asked(1);
    lookup_close(stage->lookup);
    stage->lookup = NULL;
    resolver_close(stage->resolver); /* returns although the thread hangs */
    assert_int_equal(resolver_open(stage->base, &stage->resolver, &err), STATUS_OK);
    hang(false);
    look_up(stage, "two");
    wait_answer(stage);
    assert_string_equal(stage->host, "127.0.0.2");
}

/* --- Through a connection
 * ----------------------------------------------------------------------------------------------- */

struct call {
    int ups, downs;
    struct err err;
};

static void on_up(void *context)
{
    ((struct call *)context)->ups++;
}

static void on_down(void *context, const struct err *err)
{
    struct call *call = context;
    call->downs++;
    call->err = *err;
}

static struct connection *open_connection(struct stage *stage, struct address *address, uint32_t timeout_ms,
                                          struct call *call)
{
    struct err err;
    struct connection *connection;
    struct connection_options options = {.base = stage->base,
                                         .address = address,
                                         .resolver = stage->resolver,
                                         .connect_timeout_ms = timeout_ms,
                                         .max_reply_bytes = 1000,
                                         .context = call,
                                         .on_up = on_up,
                                         .on_down = on_down};
    assert_int_equal(connection_open(&options, &connection, &err), STATUS_OK);
    while (call->ups + call->downs == 0) { event_base_loop(stage->base, EVLOOP_ONCE); }
    return connection;
}

STAGE_TEST(a_connection_says_what_it_waited_for)
{
    struct address address;
    struct err err;
    struct call call = {0};
    assert_int_equal(address_parse("redis://one", &address, &err), STATUS_OK);
    hang(true);
    connection_close(open_connection(stage, &address, 20, &call));
    assert_int_equal(call.downs, 1);
    assert_string_equal(call.err.message, "one:6379: the name service does not answer in time");
    address_free(&address);
}

/* Nobody listens at the first address of `two`. */
STAGE_TEST(each_address_of_a_name_is_tried)
{
    struct address address;
    struct err err;
    struct call call = {0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof to;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &length), 0);
    char text[64];
    snprintf(text, sizeof text, "redis://two:%u", ntohs(to.sin_port));
    assert_int_equal(address_parse(text, &address, &err), STATUS_OK);
    connection_close(open_connection(stage, &address, 20000, &call));
    assert_int_equal(call.ups, 1);
    close(listener);
    call = (struct call){0};
    connection_close(open_connection(stage, &address, 20000, &call));
    assert_int_equal(call.downs, 1);
    assert_non_null(strstr(call.err.message, "Connection refused"));
    address_free(&address);
}
