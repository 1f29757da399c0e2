# AccessCheck: what the fast path checks where users have to log in: the signature of each request (or that
# the connection's login still holds), and that the user may send to the topic, or pull it for the group.
# False means "not checked here": the complete path checks again, refuses, counts and logs.
#
# Login: the user of a connection, whose first request the complete path has let through. Only requests of
# this user are checked here, so that guesses of passwords never are. It holds until users or rules change
# (`generation`).
#
# Ownership: spans are borrowed from the frame. Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.header_template cimport SigningPlan
from firearrow._native.fastpath.request_fields cimport SendFields
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport Span

cdef extern from "base/hmac_sha1.h" nogil:
    ctypedef struct fa_sha1:
        pass
    ctypedef struct fa_hmac_key:
        fa_sha1 inner
    ctypedef struct fa_libcrypto:
        int (*add)(fa_sha1 *hash, const void *at, size_t length) noexcept nogil
        int (*differ)(const void *one, const void *other, size_t length) noexcept nogil
    bint fa_libcrypto_load(const char *path, fa_libcrypto *found) noexcept
    void fa_hmac_set_key(
        const fa_libcrypto *by, fa_hmac_key *key, const uint8_t *secret, size_t length
    ) noexcept
    void fa_hmac_end(const fa_libcrypto *by, const fa_hmac_key *key, fa_sha1 *hash, uint8_t *base64) noexcept


@cython.final
cdef class Login:
    cdef bytes name
    cdef str user                         # the same as text
    cdef bint has_key                     # libcrypto was found
    cdef fa_hmac_key key
    cdef bytes secret
    cdef int64_t generation
    cdef double until                     # with the stateful strategy: when a signature is checked again
    cdef set allowed                      # sends and pulls that it may make (see `may_use`); None: all
    cdef bytes last                       # of them, the last one


@cython.final
cdef class AccessCheck:
    cdef object allows
    cdef bint each                        # checks each signature
    cdef bint authorization
    cdef int64_t generation
    cdef uint8_t *buffer                  # of signed values, or of a name

    cdef Login login_of(self, FastConnection connection)
    cdef bint is_signed(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1
    cdef bint is_templated_signed(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, SigningPlan plan
    ) except -1
    cdef bint is_logged_in(self, FastConnection connection, str user) except -1
    cdef bint may_use(self, FastConnection connection, const Span *topic, const Span *group) except -1
    cdef Py_ssize_t add(self, Py_ssize_t used, const Span *value) noexcept
    cdef bint is_digest(
        self, Login login, Py_ssize_t used, const Frame *frame, const Span *signature
    ) except -1
    cdef SigningPlan plan_of(self, const Header *header, const SendFields *fields)
