/* OpenSSL's functions, found at run time in the library that Python's `ssl` module has loaded: the build needs no
 * headers of OpenSSL, and the process has one copy of it. Below, those that a TLS session calls. These prototypes have not
 * changed since OpenSSL 1.1.1. Any thread. */
#ifndef FIREARROW_OPENSSL_H
#define FIREARROW_OPENSSL_H

#include <dlfcn.h>
#include <stddef.h>

typedef struct { size_t offset; const char *name; } OpenSslFunction;

/* Sets the members of `found` from the library that `path`, a loaded shared object, depends on; 0 if one is missing. */
static inline int openssl_find(const char *path, const OpenSslFunction *functions, size_t count, void *found)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return 0;
    for (size_t n = 0; n < count; n++) {
        void *function = dlsym(library, functions[n].name);
        if (!function) return 0;
        *(void **) ((char *) found + functions[n].offset) = function;
    }
    return 1;
}

typedef struct {
    void *(*ssl_new)(void *context);
    void (*ssl_free)(void *ssl);
    void (*set_accept_state)(void *ssl);
    void (*set_bio)(void *ssl, void *in, void *out);
    int (*do_handshake)(void *ssl);
    int (*read)(void *ssl, void *to, int length);
    int (*write)(void *ssl, const void *data, int length);
    int (*shutdown)(void *ssl);
    int (*get_error)(const void *ssl, int result);
    int (*pending)(const void *ssl);
    long (*ctrl)(void *ssl, int command, long number, void *pointer);
    void *(*bio_meth_new)(int type, const char *name);
    int (*bio_meth_set_read)(void *method, int (*read)(void *, char *, int));
    int (*bio_meth_set_write)(void *method, int (*write)(void *, const char *, int));
    int (*bio_meth_set_ctrl)(void *method, long (*ctrl)(void *, int, long, void *));
    void *(*bio_new)(const void *method);
    int (*bio_free)(void *bio);
    int (*bio_up_ref)(void *bio);
    void (*bio_set_init)(void *bio, int init);
    void (*bio_set_data)(void *bio, void *data);
    void *(*bio_get_data)(void *bio);
    void (*bio_set_flags)(void *bio, int flags);
    void (*bio_clear_flags)(void *bio, int flags);
    unsigned long (*peek_error)(void);
    unsigned long (*last_error)(void);
    void (*clear_errors)(void);
    const char *(*reason)(unsigned long error);
} OpenSsl;

static inline int openssl_load(const char *path, OpenSsl *found)
{
    static const OpenSslFunction functions[] = {
#define FUNCTION(member, name) { offsetof(OpenSsl, member), name }
        FUNCTION(ssl_new, "SSL_new"), FUNCTION(ssl_free, "SSL_free"),
        FUNCTION(set_accept_state, "SSL_set_accept_state"), FUNCTION(set_bio, "SSL_set_bio"),
        FUNCTION(do_handshake, "SSL_do_handshake"), FUNCTION(read, "SSL_read"), FUNCTION(write, "SSL_write"),
        FUNCTION(shutdown, "SSL_shutdown"), FUNCTION(get_error, "SSL_get_error"), FUNCTION(pending, "SSL_pending"),
        FUNCTION(ctrl, "SSL_ctrl"), FUNCTION(bio_meth_new, "BIO_meth_new"),
        FUNCTION(bio_meth_set_read, "BIO_meth_set_read"), FUNCTION(bio_meth_set_write, "BIO_meth_set_write"),
        FUNCTION(bio_meth_set_ctrl, "BIO_meth_set_ctrl"), FUNCTION(bio_new, "BIO_new"), FUNCTION(bio_free, "BIO_free"),
        FUNCTION(bio_up_ref, "BIO_up_ref"), FUNCTION(bio_set_init, "BIO_set_init"),
        FUNCTION(bio_set_data, "BIO_set_data"), FUNCTION(bio_get_data, "BIO_get_data"),
        FUNCTION(bio_set_flags, "BIO_set_flags"), FUNCTION(bio_clear_flags, "BIO_clear_flags"),
        FUNCTION(peek_error, "ERR_peek_error"), FUNCTION(last_error, "ERR_peek_last_error"),
        FUNCTION(clear_errors, "ERR_clear_error"), FUNCTION(reason, "ERR_reason_error_string"),
#undef FUNCTION
    };
    return openssl_find(path, functions, sizeof functions / sizeof *functions, found);
}

#endif
