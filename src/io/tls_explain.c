/* OpenSSL's reasons in the words of the person who has to mend them. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>

#include "io/tls_private.h"

/* Why the server's certificate was not believed. */
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
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: /* what TLS 1.2 says for it, and for ciphers */
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
