/* TLS for a load generator's connection: one read of the socket for all records that have come, and one write for all
 * requests of a turn, as with a plain one. Certificates are not checked. One thread. */
#ifndef BENCH_TLS_H
#define BENCH_TLS_H

#include <openssl/ssl.h>

enum { CIPHERTEXT_BYTES = 1 << 16 };

typedef struct {
    SSL *ssl;
    BIO *incoming, *outgoing;
    size_t encrypted;                         /* bytes of `out` that are ciphertext already */
} TlsState;

static inline void open_tls(Connection *connection)
{
    static SSL_CTX *context;
    TlsState *state = calloc(1, sizeof *state);
    if (!context && !(context = SSL_CTX_new(TLS_client_method()))) die("no TLS");
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    state->ssl = SSL_new(context);
    SSL_set_fd(state->ssl, connection->fd);
    if (SSL_connect(state->ssl) != 1) die("the TLS handshake failed");
    state->incoming = BIO_new(BIO_s_mem());
    state->outgoing = BIO_new(BIO_s_mem());
    SSL_set_bio(state->ssl, state->incoming, state->outgoing);
    connection->tls = state;
}

/* Replaces the requests after those that are encrypted, which the kernel has not taken yet, by their records. */
static inline void encrypt_out(Connection *connection)
{
    TlsState *state = connection->tls;
    size_t at = state->encrypted;
    char *records;
    if (connection->out_bytes == at) return;
    if (SSL_write(state->ssl, connection->out + at, (int) (connection->out_bytes - at)) <= 0) die("SSL_write failed");
    size_t length = BIO_get_mem_data(state->outgoing, &records);
    if (at + length > connection->out_capacity) {
        connection->out_capacity = (at + length) * 2;
        if (!(connection->out = realloc(connection->out, connection->out_capacity))) fail("realloc");
    }
    memcpy(connection->out + at, records, length);
    BIO_reset(state->outgoing);
    state->encrypted = connection->out_bytes = at + length;
}

static inline void all_sent(Connection *connection)
{
    ((TlsState *) connection->tls)->encrypted = 0;
}

/* As recv, of plaintext. */
static inline ssize_t receive(Connection *connection, void *to, size_t length)
{
    static char ciphertext[CIPHERTEXT_BYTES];
    TlsState *state = connection->tls;
    size_t taken = 0, got;
    ssize_t count = recv(connection->fd, ciphertext, sizeof ciphertext < length ? sizeof ciphertext : length, MSG_DONTWAIT);
    if (count <= 0) return count;
    BIO_write(state->incoming, ciphertext, (int) count);
    while (taken < length && SSL_read_ex(state->ssl, (char *) to + taken, length - taken, &got)) taken += got;
    errno = EAGAIN;
    return taken ? (ssize_t) taken : -1;
}

#endif
