# TlsSession: one TLS connection, without its socket: ciphertext in, plaintext out, and back.
#
# A session calls the OpenSSL that Python's `ssl` module has loaded; `ssl.SSLContext` makes the context,
# so that certificates, keys and errors are Python's. Its own objects cost more: 1.8 and 1.3 us for a
# record in and out, OpenSSL itself 0.8 and 0.8 (128 B).
#
# Buffers: all sessions of a context read from and write to one TlsBuffers, of which each call uses what
# it needs before another session is called. A session keeps only ciphertext that its reader had no room
# for (`rest`), and, until the message's length is known to be acceptable, the first bytes of its
# ClientHello. OpenSSL keeps at most one partial record.
#
# Thread: the loop's.

from libc.stdint cimport uint8_t

cdef enum:
    SCRATCH_BYTES = 65536                 # of ciphertext read at once, and of plaintext encrypted at once
    HELLO_HEAD_BYTES = 4                  # of a handshake message: its type and length

cdef struct TlsBuffers:
    const uint8_t *incoming               # ciphertext that OpenSSL has not read yet
    size_t left
    int reads_left                        # how often OpenSSL may read from `incoming`
    uint8_t *outgoing                     # ciphertext that it has written
    size_t size, capacity

cdef class TlsContext:
    cdef readonly object context  # type: ssl.SSLContext  # ssl.SSLContext of new sessions
    cdef readonly bint enforcing          # connections without TLS are closed
    cdef void *bio
    cdef TlsBuffers buffers
    cdef uint8_t *scratch                 # SCRATCH_BYTES

cdef class TlsSession:
    cdef TlsContext shared
    cdef object context                   # of this session; a later one may have replaced it
    cdef void *ssl                        # NULL until the ClientHello's head has come
    cdef uint8_t *rest
    cdef Py_ssize_t rest_bytes, rest_capacity
    cdef bint established, ended
    cdef bint keeps_buffers               # OpenSSL's buffers are kept between records
    cdef int reads                        # in quick succession
    cdef double empty_since               # records without data since then; see EMPTY_RECORDS_MAX
    cdef int empty_records

    cdef int keep(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef bint has_rest(self) noexcept
    cdef int begin(self) except -1
    cdef int handshake(self, Py_ssize_t count) except -1
    cdef Py_ssize_t decrypt(self, uint8_t *to, Py_ssize_t capacity, double now) except -1
    cdef int count_empty(self, double now) except -1
    cdef void note_pause(self, double seconds) noexcept
    cdef int encrypt(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef int end(self) except -1
    cdef int prepare(self) except -1
    cdef int feed(self, Py_ssize_t count) except -1
    cdef int save_rest(self) except -1
