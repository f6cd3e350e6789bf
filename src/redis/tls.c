/* OpenSSL's context and sessions, and its errors in words that help an operator to fix them. */
#include "redis/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/* The files that are watched for changes. */
enum tls_file { TLS_CA, TLS_CERT, TLS_KEY, TLS_FILES };

/* A value that changes when the content of a file does. */
struct tls_stamp {
    struct timespec changed;
    off_t size;
    ino_t inode;
};

/* Makes sessions; `stamps` identifies the content of the files that it holds. */
struct tls {
    struct ssl_ctx_st *context;
    char *files[TLS_FILES]; /* NULL where none is named */
    struct tls_stamp stamps[TLS_FILES];
};

static const char *const file_keys[TLS_FILES] = {"tls_ca_file", "tls_cert_file", "tls_key_file"};

/* --- Files -------------------------------------------------------------------------------------------------------- */

/* Names the setting, the file, and OpenSSL's oldest error, which caused the others. */
static enum status refuse_file(const struct tls *tls, enum tls_file file, struct err *err)
{
    unsigned long code = ERR_peek_error();
    const char *reason =
        ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    bool key = file == TLS_KEY;
    ERR_clear_error();
    return err_set(err, STATUS_BAD_INPUT, "%s %s: no %s in PEM format that can be used: %s", file_keys[file],
                   tls->files[file], key ? "unencrypted key of that certificate" : "certificate",
                   reason ? reason : "unknown");
}

/* Reports a missing or unreadable file more plainly than OpenSSL would. */
static enum status look_at_files(struct tls *tls, struct tls_stamp stamps[TLS_FILES], struct err *err)
{
    for (int i = 0; i < TLS_FILES; i++) {
        struct stat info;
        stamps[i] = (struct tls_stamp){0};
        if (!tls->files[i]) { continue; }
        FILE *file = fopen(tls->files[i], "re");
        if (!file || fstat(fileno(file), &info) < 0) {
            err_set_errno(err, "%s %s", file_keys[i], tls->files[i]);
            if (file) { fclose(file); }
            return err->status;
        }
        fclose(file);
        stamps[i] = (struct tls_stamp){info.st_mtim, info.st_size, info.st_ino};
    }
    return STATUS_OK;
}

/* Refuses an encrypted key; OpenSSL would ask for the password on the terminal. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)context;
    return 0;
}

static enum status load_files(const struct tls *tls, SSL_CTX *context, struct err *err)
{
    const char *const *files = (const char *const *)tls->files;
    if (files[TLS_CA] ? !SSL_CTX_load_verify_file(context, files[TLS_CA])
                      : !SSL_CTX_set_default_verify_paths(context)) {
        return files[TLS_CA] ? refuse_file(tls, TLS_CA, err)
                             : err_set(err, STATUS_IO, "the system's list of certificate authorities cannot be read");
    }
    if (files[TLS_CERT] && SSL_CTX_use_certificate_chain_file(context, files[TLS_CERT]) != 1) {
        return refuse_file(tls, TLS_CERT, err);
    }
    if (files[TLS_KEY] && (SSL_CTX_use_PrivateKey_file(context, files[TLS_KEY], SSL_FILETYPE_PEM) != 1 ||
                           SSL_CTX_check_private_key(context) != 1)) {
        return refuse_file(tls, TLS_KEY, err);
    }
    return STATUS_OK;
}

static enum status make_context(struct tls *tls, SSL_CTX **out, struct err *err)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION)) {
        SSL_CTX_free(context);
        return err_set(err, STATUS_NO_MEMORY, "no memory for TLS");
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    enum status status = load_files(tls, context, err);
    if (status) {
        SSL_CTX_free(context);
        return status;
    }
    *out = context;
    return STATUS_OK;
}

/* Reads the files again if they have changed. */
static enum status refresh_context(struct tls *tls, struct err *err)
{
    struct tls_stamp stamps[TLS_FILES];
    SSL_CTX *context = NULL;
    TRY(look_at_files(tls, stamps, err));
    if (tls->context && memcmp(stamps, tls->stamps, sizeof stamps) == 0) { return STATUS_OK; }
    TRY(make_context(tls, &context, err));
    SSL_CTX_free(tls->context); /* its open sessions keep a reference */
    tls->context = context;
    memcpy(tls->stamps, stamps, sizeof stamps);
    return STATUS_OK;
}

/* --- Life --------------------------------------------------------------------------------------------------------- */

enum status tls_open(const struct tls_options *options, struct tls **out, struct err *err)
{
    const char *const names[TLS_FILES] = {options->ca_file, options->cert_file, options->key_file};
    struct tls *tls = calloc(1, sizeof *tls);
    bool memory = tls;
    for (int i = 0; memory && i < TLS_FILES; i++) {
        tls->files[i] = names[i] ? strdup(names[i]) : NULL;
        memory = !names[i] || tls->files[i];
    }
    enum status status = memory ? refresh_context(tls, err) : err_set(err, STATUS_NO_MEMORY, "no memory for TLS");
    if (status) {
        tls_close(tls);
        return status;
    }
    *out = tls;
    return STATUS_OK;
}

void tls_close(struct tls *tls)
{
    if (!tls) { return; }
    SSL_CTX_free(tls->context);
    for (int i = 0; i < TLS_FILES; i++) { free(tls->files[i]); }
    free(tls);
}

/* --- Sessions ----------------------------------------------------------------------------------------------------- */

/* Requires the certificate to cover this host: an IP address, or a name, which is also sent to the server (SNI). */
static bool expect_host(SSL *session, const char *host)
{
    X509_VERIFY_PARAM *wanted = SSL_get0_param(session);
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host)) { return true; }
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(wanted, host, 0) && SSL_set_tlsext_host_name(session, (void *)(uintptr_t)host);
}

enum status tls_session(struct tls *tls, const char *host, struct ssl_st **out, struct err *err)
{
    TRY(refresh_context(tls, err));
    SSL *session = SSL_new(tls->context);
    if (!session || !expect_host(session, host)) {
        SSL_free(session);
        ERR_clear_error();
        return err_set(err, STATUS_NO_MEMORY, "no memory for TLS");
    }
    *out = session;
    return STATUS_OK;
}

/* --- Errors ------------------------------------------------------------------------------------------------------- */

/* Says why the server's certificate is not trusted. */
static void explain_certificate(const struct tls *tls, long result, const char *host, char *text, size_t size)
{
    const char *authorities = tls->files[TLS_CA] ? tls->files[TLS_CA] : "the system's list (tls_ca_file names another)";
    switch (result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        snprintf(text, size, "the server's certificate has expired");
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        snprintf(text, size, "the server's certificate is not valid yet; is a clock wrong?");
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        snprintf(text, size, "the server's certificate is for another host than %s", host);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        snprintf(text, size, "the server's certificate is self-signed, and it is not in %s", authorities);
        break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        snprintf(text, size, "the server's certificate is signed by an authority that is not in %s", authorities);
        break;
    default:
        snprintf(text, size, "the server's certificate is refused: %s", X509_verify_cert_error_string(result));
    }
}

static const char *explain_code(const struct tls *tls, unsigned long code, bool up)
{
    switch (ERR_GET_REASON(code)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
        return up ? NULL : "no TLS on that port; plain Redis is redis://";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return "the server has no TLS version in common with us (1.2 at least)";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "the server wants a certificate of ours: set tls_cert_file and tls_key_file";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: /* TLS 1.2: no certificate, or no common cipher */
        return tls->files[TLS_CERT] ? "the server refuses the handshake: no cipher in common, or our certificate"
                                    : "the server refuses the handshake; if it wants a certificate of ours, "
                                      "set tls_cert_file and tls_key_file";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        return "the server does not believe our certificate (tls_cert_file)";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "the server says that our certificate has expired (tls_cert_file)";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return "the server says that our certificate was revoked (tls_cert_file)";
    default:
        return NULL;
    }
}

bool tls_explain(const struct tls *tls, const struct ssl_st *session, const char *host, unsigned long code, bool up,
                 char *text, size_t size)
{
    long result = SSL_get_verify_result(session);
    if (result != X509_V_OK) {
        explain_certificate(tls, result, host, text, size);
        return true;
    }
    if (ERR_GET_LIB(code) != ERR_LIB_SSL || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        return false;
    }
    const char *words = explain_code(tls, code, up), *reason = ERR_reason_error_string(code);
    snprintf(text, size, "%s%s", words ? words : "TLS: ", words ? "" : reason ? reason : "unknown error");
    return true;
}
