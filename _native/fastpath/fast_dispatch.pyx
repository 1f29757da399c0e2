"""FastDispatch: dispatches requests by their code to the fast path (see fast_dispatch.pxd)."""

from firearrow._native.fastpath.fast_connection cimport (
    HANDLED, NOT_HANDLED, FastConnection, RequestCounts, is_pull, is_send,
)
from firearrow._native.fastpath.long_polling cimport PullHoldService
from firearrow._native.wire.codes cimport SEND_MESSAGE
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef enum:
    CLIENTS_MAX = 64
    OTHERS = -1                   # language and version of clients beyond them


cdef class RequestCounters:
    """Counts of requests by kind of client, of all connections together."""

    def __cinit__(self):
        self.clients = {}

    cdef RequestCounts of(self, int language, int version):
        found = self.clients.get((language, version))
        if found is None and len(self.clients) >= CLIENTS_MAX:
            language = version = OTHERS
            found = self.clients.get((language, version))
        if found is None:
            found = self.clients[language, version] = RequestCounts(language, version)
        return <RequestCounts> found

    def all(self):
        # type: (...) -> list[RequestCounts]
        """By language and version; -1 and -1: clients beyond the 64 kinds that have counts of their own."""
        return list(self.clients.values())


cdef class CompleteDispatch(FastHandler):
    """Leaves all requests to the complete path; answers held pulls when a connection is not throttled any
    more."""

    def __cinit__(self, PullHoldService hold_service not None):
        # type: (...) -> None
        self.hold_service = hold_service

    cdef int throttle_ended(self, FastConnection connection) except -1:
        return self.hold_service.notify_peer(connection)


cdef class FastDispatch(FastHandler):
    """Plain sends and pulls without a Python object for each; `puller` None: sends only."""

    def __cinit__(self, Sender sender not None, Puller puller, RequestCounters counters not None):
        # type: (Sender, Puller | None, RequestCounters) -> None
        self.sender = sender
        self.puller = puller
        self.counters = counters

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1:
        cdef RequestCounts counts = connection.counts
        cdef int code = header.code
        if counts is None or counts.language != header.language or counts.version != header.version:
            counts = connection.counts = self.counters.of(header.language, header.version)
        if is_send(code):
            if self.sender.handle_frame(connection, frame, header, code == SEND_MESSAGE) == HANDLED:
                counts.parsed += 1
                return HANDLED
            counts.sends_left[self.sender.reason] += 1
        elif is_pull(code) and self.puller is not None:
            if self.puller.handle_frame(connection, frame, header) == HANDLED:
                counts.pulled += 1
                return HANDLED
            counts.pulls_left[self.puller.reason] += 1
        return NOT_HANDLED

    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1:
        if self.sender.handle_templated(connection, frame) == NOT_HANDLED:
            return NOT_HANDLED
        connection.counts.templated += 1
        return HANDLED

    cdef int throttle_ended(self, FastConnection connection) except -1:
        if self.puller is not None:
            self.puller.hold_service.notify_peer(connection)
        return 0
