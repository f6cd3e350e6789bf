/* How errors are reported: an enum status to branch on and a struct err for people.
 * Detecting code fills the err and returns its status; handling code logs it once. Only cli/ exits. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

/* The result of a call. */
enum status {
    STATUS_OK = 0,
    STATUS_BAD_INPUT,   /* the input of a user, a file or a request is wrong */
    STATUS_NOT_FOUND,   /* a named file, key or field does not exist */
    STATUS_UNSUPPORTED, /* understood, but not something this build or version does */
    STATUS_NO_MEMORY,
    STATUS_IO,          /* reading or writing failed */
    STATUS_UNAVAILABLE, /* a peer is not there now; trying again later may help */
    STATUS_DENIED,      /* the peer refuses us; trying again will not help */
    STATUS_TIMEOUT,
    STATUS_DEVICE_LOST, /* the compute device needs a new process */
    STATUS_NON_FINITE,  /* a computed vector holds NaN or infinity */
    STATUS_INTERNAL,    /* a bug of ours */
};

/* The error message for people; filled by the code that detects the error. */
struct err {
    enum status status;
    char message[512];
};

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(at, first) __attribute__((format(printf, at, first)))

/* Returns from the calling function when `call` is not STATUS_OK, with its status: for a straight line of steps that
 * have nothing to clean up. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        enum status try_status_ = (call);                                                                              \
        if (try_status_ != STATUS_OK) { return try_status_; }                                                          \
    } while (0)

/* Fills `err` with a status and a formatted message, cut to its size and made valid UTF-8 whatever it quotes
 * (utf8_mend), and returns the status.
 * Errors: none; `err` may be NULL when the caller needs the status only. */
enum status err_set(struct err *err, enum status status, const char *format, ...) PRINTF_LIKE(3, 4);

/* Like err_set for STATUS_IO or the status that fits errno, with strerror(errno) after the message. */
enum status err_set_errno(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Puts a formatted "where: " before the message that is already there; keeps and returns the status in `err`, which may
 * not be NULL here. */
enum status err_prefix(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* The status in one lower-case word, e.g. "bad_input". */
const char *status_name(enum status status);

/* The process exit code (sysexits.h) for a status. */
int status_exit_code(enum status status);

#endif
