# FastHandler: the fast path for some requests. `handle_frame` returns HANDLED, or NOT_HANDLED; then it has
# changed nothing, and the complete handler processes the request. Frame and header are borrowed for the call.
# `handle_templated` is tried first if the connection has a template: a matching header is not parsed.
#
# RequestCounts: how the requests of one kind of client were handled: sends whose header matched a template,
# other sends and pulls on the fast path, and those left to the complete handlers, by Reason.
#
# FastConnection: a connection that offers each request to its FastHandler first. All replies collect in `out`
# in the order of their requests and are sent with one write.
#
# A throttled connection (over a quota) sends no reply and reads no request until then: its replies collect in
# `out`, at most those of one pass and of its held requests. While throttled, `flush_planned` is set, so that
# no flush is scheduled.
#
# Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.fastpath.header_template cimport HeaderTemplate
from firearrow._native.wire.codes cimport (
    LITE_PULL_MESSAGE, PULL_MESSAGE, SEND_BATCH_MESSAGE, SEND_MESSAGE, SEND_MESSAGE_V2,
)
from firearrow._native.wire.connection cimport Connection
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    NOT_HANDLED = 0
    HANDLED = 1

cdef enum Reason:
    # why a request left the fast path; names in fast_connection.pyx
    LEFT_FIELDS                   # one is missing or not in the plain form
    LEFT_BODY                     # empty or too large
    LEFT_STORE                    # it takes no messages now
    LEFT_TOPIC                    # unknown, not plain, or without this queue
    LEFT_PROPERTIES               # one of them needs more than storing
    LEFT_SIZE                     # of the record
    LEFT_SUBSCRIPTION             # the group may not pull, or filters by more than tags
    LEFT_OFFSET                   # outside of the queue, or about to be reset
    LEFT_NO_MATCH                 # no message matches, or it cannot be held
    LEFT_ACCESS                   # its user has to log in first, or may not do it
    LEFT_QUOTA                    # over a quota: it has to wait, or is refused
    REASONS


cdef inline bint is_send(int code) noexcept:
    return code == SEND_MESSAGE_V2 or code == SEND_BATCH_MESSAGE or code == SEND_MESSAGE


cdef inline bint is_pull(int code) noexcept:
    return code == PULL_MESSAGE or code == LITE_PULL_MESSAGE


@cython.final
cdef class RequestCounts:
    cdef readonly int language, version
    cdef readonly int64_t templated, parsed, pulled
    cdef int64_t sends_left[REASONS]
    cdef int64_t pulls_left[REASONS]

cdef class FastConnection(Connection):
    cdef Writer out
    cdef public FastHandler fast_handler  # type: FastHandler | None  # None: all requests go to `received`
    cdef public bytes host                # the peer's address as in records
    cdef HeaderTemplate template          # of its last send; None: no send yet
    cdef unsigned int unmatched           # sends since one matched a template
    cdef RequestCounts counts             # of its kind of client; None: no request yet
    cdef readonly int language, version  # Of its last request, as its version; -1: it sent none.
    cdef object login                     # a Login (access_check.pxd); None: nobody has logged in
    cdef object throttle_timer            # None: not throttled

    cdef int append_reply(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int schedule_flush(self) except -1
    cdef int write_through(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int flush_out(self) except -1
    cpdef abort_with(self, error)
    cpdef throttle(self, double delay_s)
    cdef int flush_throttled(self) except -1

cdef class FastHandler:
    cdef int handle_frame(self, FastConnection connection, const Frame *frame, const Header *header) except -1
    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1
    cdef int throttle_ended(self, FastConnection connection) except -1
