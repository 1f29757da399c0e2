"""ArrivalNotifier: notifies of queues with messages that readers could not see before (see arrivals.pxd)."""


# type: from firearrow._native.fastpath.long_polling import Queue


cdef class ArrivalListener:
    cdef bint is_interested(self, list queues) except -1:
        cdef tuple queue
        if self.waiters:
            return True
        for queue in queues:
            if queue[0] in self.topics:
                return True
        return False


cdef class ArrivalNotifier:
    """Notifies `hold_service` and all listeners. Call it with the queues that have newly visible messages."""

    def __init__(self, PullHoldService hold_service=None):
        # type: (...) -> None
        self.hold_service = hold_service
        self.listeners = []

    def listen(self, call, *, topics=(), waiters=()):
        # type: (Callable[[set[Queue]], None], Iterable[str], Collection[object]) -> None
        """Call `call(queues)` with all queues of an arrival if one of `topics` is among them or `waiters` is
        not empty."""
        cdef ArrivalListener listener = ArrivalListener.__new__(ArrivalListener)
        listener.call, listener.topics, listener.waiters = call, frozenset(topics), waiters
        self.listeners.append(listener)

    def __call__(self, queues):
        # type: (Iterable[Queue]) -> None
        self.notify(list(queues))

    cdef bint has_waiters(self) except -1:
        """Whether an arrival in a plain topic has a listener."""
        cdef ArrivalListener listener
        if self.hold_service is not None and self.hold_service.waiting:
            return True
        for listener in self.listeners:
            if listener.waiters:
                return True
        return False

    cdef int notify(self, list queues) except -1:
        cdef ArrivalListener listener
        cdef tuple queue
        if self.hold_service is not None and self.hold_service.waiting:
            for queue in queues:
                self.hold_service.notify_arriving(queue)
        for listener in self.listeners:
            if listener.is_interested(queues):
                listener.call(set(queues))
        return 0
