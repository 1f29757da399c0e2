"""TlsSession: one TLS connection, without its socket (see tls_session.pxd)."""

import ssl
import sys

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove


cdef extern from "wire/openssl.h" nogil:
    ctypedef struct OpenSsl:
        void *(*ssl_new)(void *) noexcept nogil
        void (*ssl_free)(void *) noexcept nogil
        void (*set_accept_state)(void *) noexcept nogil
        void (*set_bio)(void *, void *, void *) noexcept nogil
        int (*do_handshake)(void *) noexcept nogil
        int (*read)(void *, void *, int) noexcept nogil
        int (*write)(void *, const void *, int) noexcept nogil
        int (*shutdown)(void *) noexcept nogil
        int (*get_error)(const void *, int) noexcept nogil
        int (*pending)(const void *) noexcept nogil
        long (*ctrl)(void *, int, long, void *) noexcept nogil
        void *(*bio_meth_new)(int, const char *) noexcept nogil
        int (*bio_meth_set_read)(void *, int (*)(void *, char *, int) noexcept nogil) noexcept nogil
        int (*bio_meth_set_write)(void *, int (*)(void *, const char *, int) noexcept nogil) noexcept nogil
        int (*bio_meth_set_ctrl)(void *, long (*)(void *, int, long, void *) noexcept nogil) noexcept nogil
        void *(*bio_new)(const void *) noexcept nogil
        int (*bio_free)(void *) noexcept nogil
        int (*bio_up_ref)(void *) noexcept nogil
        void (*bio_set_init)(void *, int) noexcept nogil
        void (*bio_set_data)(void *, void *) noexcept nogil
        void *(*bio_get_data)(void *) noexcept nogil
        void (*bio_set_flags)(void *, int) noexcept nogil
        void (*bio_clear_flags)(void *, int) noexcept nogil
        unsigned long (*peek_error)() noexcept nogil
        unsigned long (*last_error)() noexcept nogil
        void (*clear_errors)() noexcept nogil
        const char *(*reason)(unsigned long) noexcept nogil
    int openssl_load(const char *path, OpenSsl *found)

cdef enum:                                # openssl/ssl.h and openssl/bio.h
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_ZERO_RETURN = 6
    SSL_CTRL_MODE = 33
    SSL_CTRL_CLEAR_MODE = 78
    SSL_MODE_RELEASE_BUFFERS = 16
    BIO_TYPE_SOURCE_SINK = 0x0400
    BIO_CTRL_FLUSH = 11
    BIO_FLAGS_READ = 1
    BIO_FLAGS_SHOULD_RETRY = 8

cdef enum:
    RECORD_HANDSHAKE = 0x16
    CLIENT_HELLO = 1
    RECORD_HEAD = 5
    NO_HANDSHAKE = -1
    CLIENT_HELLO_MAX = 16384              # OpenSSL reserves what the length states, up to 128 KiB
    BUSY_READS = 16
    RECORD_READS = 2                      # of OpenSSL's for a record: its header and the rest
    UNLIMITED = 0x7FFFFFFF
    EMPTY_RECORDS_MAX = 32                # without data, of a session in EMPTY_S

cdef double BUSY_S = 1.0
cdef double EMPTY_S = 1.0
NEWEST_PYTHON = (3, 14)
"""The newest version whose SSLContext is known to begin with its SSL_CTX."""

cdef OpenSsl openssl
cdef void *bio_method = NULL


class TlsError(Exception):
    """The handshake failed or the peer broke the protocol; the text states how."""
    pass


cdef bint load_openssl() except -1:
    """Whether OpenSSL was found where `ssl` has it."""
    import _ssl
    path = getattr(_ssl, "__file__", None)
    if path is None or sys.implementation.name != "cpython" or sys.version_info[:2] > NEWEST_PYTHON:
        return False
    return openssl_load(path.encode(), &openssl) != 0 and make_bio_method()


cdef int read_incoming(void *bio, char *to, int length) noexcept nogil:
    cdef TlsBuffers *buffers = <TlsBuffers *> openssl.bio_get_data(bio)
    cdef size_t count = min(<size_t> length, buffers.left)
    openssl.bio_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
    if count == 0 or buffers.reads_left == 0:
        openssl.bio_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    buffers.reads_left -= 1
    memcpy(to, buffers.incoming, count)
    buffers.incoming += count
    buffers.left -= count
    return <int> count


cdef int write_outgoing(void *bio, const char *data, int length) noexcept nogil:
    """-1: no memory, which ends the session."""
    cdef TlsBuffers *buffers = <TlsBuffers *> openssl.bio_get_data(bio)
    cdef size_t capacity = max(buffers.size + length, 2 * buffers.capacity)
    cdef uint8_t *larger
    if buffers.size + length > buffers.capacity:
        larger = <uint8_t *> realloc(buffers.outgoing, capacity)
        if larger is NULL:
            return -1
        buffers.outgoing, buffers.capacity = larger, capacity
    memcpy(buffers.outgoing + buffers.size, data, length)
    buffers.size += length
    return length


cdef long control(void *bio, int command, long number, void *pointer) noexcept nogil:
    return command == BIO_CTRL_FLUSH


cdef bint make_bio_method() except -1:
    global bio_method
    bio_method = openssl.bio_meth_new(BIO_TYPE_SOURCE_SINK, b"firearrow")
    if bio_method is NULL:
        return False
    openssl.bio_meth_set_read(bio_method, read_incoming)
    openssl.bio_meth_set_write(bio_method, write_outgoing)
    openssl.bio_meth_set_ctrl(bio_method, control)
    return True


SUPPORTED = bool(load_openssl())  # type: bool
"""Whether the OpenSSL of Python's `ssl` module can be called here."""


cdef class TlsContext:
    """TLS of listeners: the context of new connections, and whether others are closed (`enforcing`).

    A first byte 0x16 begins TLS; anything else is a plain connection. RuntimeError: not `SUPPORTED`."""

    def __init__(self, context, *, enforcing):
        # type: (ssl.SSLContext, bool) -> None
        if not SUPPORTED:
            raise RuntimeError("the OpenSSL of this Python cannot be called directly")
        self.enforcing = enforcing
        self.replace(context)
        self.scratch = <uint8_t *> malloc(SCRATCH_BYTES)
        self.bio = openssl.bio_new(bio_method)
        if self.scratch is NULL or self.bio is NULL:
            raise MemoryError()
        openssl.bio_set_data(self.bio, &self.buffers)
        openssl.bio_set_init(self.bio, 1)

    def __dealloc__(self):
        if self.bio is not NULL:
            openssl.bio_free(self.bio)
        free(self.scratch)
        free(self.buffers.outgoing)

    def replace(self, context):
        # type: (ssl.SSLContext) -> None
        """Use this context for new connections; the others keep theirs."""
        if not isinstance(context, ssl.SSLContext):
            raise TypeError(f"ssl.SSLContext, not {type(context).__name__}")
        self.context = context


cdef int hello_head(const uint8_t *at, Py_ssize_t left, uint8_t *head) noexcept nogil:
    """Copy the first HELLO_HEAD_BYTES of the handshake message, which may be split over records. Returns how
    many of them are there; NO_HANDSHAKE: these are not records of one."""
    cdef int found = 0
    cdef Py_ssize_t length, taken
    while found < HELLO_HEAD_BYTES and left > 0:
        if at[0] != RECORD_HANDSHAKE or (left > 1 and at[1] != 3):
            return NO_HANDSHAKE
        if left < RECORD_HEAD:
            break
        length = at[3] << 8 | at[4]
        if length == 0:
            return NO_HANDSHAKE
        taken = min(length, left - RECORD_HEAD, HELLO_HEAD_BYTES - found)
        memcpy(head + found, at + RECORD_HEAD, taken)
        found += taken
        at += RECORD_HEAD + length
        left -= RECORD_HEAD + length
    return NO_HANDSHAKE if found > 0 and head[0] != CLIENT_HELLO else found


cdef void *ssl_ctx(context) noexcept:
    """What an SSLContext wraps: the first member after the object's header."""
    return (<void **> (<char *> <PyObject *> context + sizeof(PyObject)))[0]


cdef class TlsSession:
    def __cinit__(self, TlsContext shared not None):
        self.shared = shared
        self.context = shared.context

    def __dealloc__(self):
        if self.ssl is not NULL:
            openssl.ssl_free(self.ssl)
        free(self.rest)

    cdef bint has_rest(self) noexcept:
        """Whether the next call has something to do without new ciphertext."""
        cdef uint8_t head[HELLO_HEAD_BYTES]
        cdef int found
        if not self.established:
            if self.ssl is not NULL:
                return False
            found = hello_head(self.rest, self.rest_bytes, head)
            return found == HELLO_HEAD_BYTES or found == NO_HANDSHAKE
        return self.rest_bytes > 0 or self.ended or openssl.pending(self.ssl) > 0

    cdef int keep(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Append ciphertext to the rest."""
        cdef uint8_t *larger
        if self.rest_bytes + length > self.rest_capacity:
            larger = <uint8_t *> realloc(self.rest, self.rest_bytes + length)
            if larger is NULL:
                raise MemoryError()
            self.rest, self.rest_capacity = larger, self.rest_bytes + length
        memcpy(self.rest + self.rest_bytes, data, length)
        self.rest_bytes += length
        return 0

    cdef int feed(self, Py_ssize_t count) except -1:
        """Let OpenSSL read the rest, or without one `count` bytes of the scratch buffer."""
        cdef TlsBuffers *buffers = &self.shared.buffers
        if self.rest_bytes > 0 and count > 0:
            self.keep(self.shared.scratch, count)
        if self.rest_bytes > 0:
            buffers.incoming, buffers.left = self.rest, self.rest_bytes
        else:
            buffers.incoming, buffers.left = self.shared.scratch, count
        return self.prepare()

    cdef int prepare(self) except -1:
        """Before a call of OpenSSL's: drop errors of another user of the library in this thread, and outgoing
        bytes of another session that had no memory left to send them."""
        self.shared.buffers.size = 0
        self.shared.buffers.reads_left = UNLIMITED
        if openssl.peek_error() != 0:
            openssl.clear_errors()
        return 0

    cdef int save_rest(self) except -1:
        """Keep what OpenSSL has not read."""
        cdef TlsBuffers *buffers = &self.shared.buffers
        cdef size_t left = buffers.left
        buffers.left = 0
        if self.rest_bytes > 0:
            memmove(self.rest, buffers.incoming, left)
            self.rest_bytes = left
        elif left > 0:
            self.keep(buffers.incoming, left)
        if self.rest_bytes == 0 and self.rest_capacity > 0:
            free(self.rest)
            self.rest, self.rest_capacity = NULL, 0
        return 0

    cdef int begin(self) except -1:
        """Create OpenSSL's session once the first bytes are there; 0: not yet. TlsError: no ClientHello."""
        cdef uint8_t head[HELLO_HEAD_BYTES]
        cdef int found = hello_head(self.rest, self.rest_bytes, head)
        if found == NO_HANDSHAKE:
            raise TlsError("this is not a TLS handshake")
        if found < HELLO_HEAD_BYTES:
            return 0
        if (head[1] << 16 | head[2] << 8 | head[3]) > CLIENT_HELLO_MAX:
            raise TlsError(f"the ClientHello is longer than {CLIENT_HELLO_MAX} bytes")
        self.ssl = openssl.ssl_new(ssl_ctx(self.context))
        if self.ssl is NULL:
            openssl.clear_errors()
            raise MemoryError()
        openssl.bio_up_ref(self.shared.bio)   # the session takes one reference for both directions
        openssl.set_bio(self.ssl, self.shared.bio, self.shared.bio)
        openssl.set_accept_state(self.ssl)
        return 1

    cdef int handshake(self, Py_ssize_t count) except -1:
        """Go on with the handshake, with the rest and `count` bytes of the scratch buffer; then `established`
        states whether it is complete. Either way there may be outgoing bytes, also after a TlsError: the
        alert."""
        cdef int done, kind
        if self.ssl is NULL and count > 0:
            self.keep(self.shared.scratch, count)
            count = 0
        if self.ssl is NULL and not self.begin():
            return 0
        self.feed(count)
        done = openssl.do_handshake(self.ssl)
        if done == 1:
            self.established = True
        else:
            kind = openssl.get_error(self.ssl, done)
            if kind != SSL_ERROR_WANT_READ:
                raise self.error(kind)
        self.save_rest()
        return 0

    cdef Py_ssize_t decrypt(self, uint8_t *to, Py_ssize_t capacity, double now) except -1:
        """Plaintext of what was fed, at most `capacity` bytes. `ended`: the peer ended the session after
        it. TlsError: too many records without data.

        OpenSSL gets one record at a time: given more, one call handles all records up to the next data,
        such as thousands of key updates, each with a reply and 26 us of work."""
        cdef TlsBuffers *buffers = &self.shared.buffers
        cdef Py_ssize_t taken = 0
        cdef int count, kind
        while taken < capacity and (buffers.left > 0 or openssl.pending(self.ssl) > 0):
            buffers.reads_left = RECORD_READS
            count = openssl.read(self.ssl, to + taken, <int> (capacity - taken))
            if count > 0:
                taken += count
                continue
            kind = openssl.get_error(self.ssl, count)
            if kind == SSL_ERROR_WANT_READ:
                if buffers.left > 0:          # else it may be a partial record
                    self.count_empty(now)
                continue
            if kind != SSL_ERROR_ZERO_RETURN:
                raise self.error(kind)
            self.ended = True
            break
        self.save_rest()
        return taken

    cdef int count_empty(self, double now) except -1:
        """A record without data: a key update, a warning, an attempt to renegotiate. What comes as the last
        one of a read is not counted: it costs its sender a segment, as a request does."""
        if now - self.empty_since >= EMPTY_S:
            self.empty_since, self.empty_records = now, 0
        self.empty_records += 1
        if self.empty_records > EMPTY_RECORDS_MAX:
            raise self.end_with(
                f"more than {EMPTY_RECORDS_MAX} records without data, such as key updates, in {EMPTY_S:.0f} s"
            )
        return 0

    cdef void note_pause(self, double seconds) noexcept:
        """How long nothing came before this read. OpenSSL keeps its two buffers of 17 KiB while reads follow
        each other quickly: allocating them for each record costs 1 us."""
        cdef bint keep = False
        if seconds < BUSY_S:
            self.reads += 1
            keep = self.reads > BUSY_READS
        else:
            self.reads = 0
        if keep != self.keeps_buffers:
            self.keeps_buffers = keep
            openssl.ctrl(
                self.ssl, SSL_CTRL_CLEAR_MODE if keep else SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL
            )

    cdef int encrypt(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Append records with this plaintext to the outgoing bytes; at most SCRATCH_BYTES."""
        cdef int count
        if not self.established:
            raise TlsError("the handshake is not complete")
        self.prepare()
        count = openssl.write(self.ssl, data, <int> length)
        if count != length:
            raise self.error(openssl.get_error(self.ssl, count))
        return 0

    cdef int end(self) except -1:
        """Append close_notify to the outgoing bytes."""
        self.prepare()
        if self.established and openssl.shutdown(self.ssl) < 0:
            openssl.clear_errors()
        return 0

    def error(self, int kind):
        """A TlsError with OpenSSL's reason; the session has ended."""
        cdef unsigned long error = openssl.last_error()
        cdef const char *reason = openssl.reason(error) if error else NULL
        openssl.clear_errors()
        if reason is NULL:
            return self.end_with(f"OpenSSL's error {kind}")
        return self.end_with((<bytes> reason).decode("ascii", "replace"))

    def end_with(self, str reason):
        """A TlsError; nothing more is decrypted."""
        self.shared.buffers.left = 0
        self.rest_bytes = 0
        self.ended = True
        return TlsError(reason)
