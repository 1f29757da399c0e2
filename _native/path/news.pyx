"""News: notifies of queues with messages that readers could not see before (see news.pxd)."""


cdef class Listener:
    cdef bint wants(self, list queues) except -1:
        cdef tuple queue
        if self.crowd:
            return True
        for queue in queues:
            if queue[0] in self.topics:
                return True
        return False


cdef class News:
    def __init__(self, Holds holds=None):
        self.holds = holds
        self.listeners = []

    def listen(self, call, *, topics=(), crowd=()):
        cdef Listener listener = Listener.__new__(Listener)
        listener.call, listener.topics, listener.crowd = call, frozenset(topics), crowd
        self.listeners.append(listener)

    def __call__(self, queues):
        self.tell(list(queues))

    cdef bint somebody_waits(self) except -1:
        """Whether an arrival in a plain topic has a listener."""
        cdef Listener listener
        if self.holds is not None and self.holds.waiting:
            return True
        for listener in self.listeners:
            if listener.crowd:
                return True
        return False

    cdef int tell(self, list queues) except -1:
        cdef Listener listener
        cdef tuple queue
        if self.holds is not None and self.holds.waiting:
            for queue in queues:
                self.holds.hear(queue)
        for listener in self.listeners:
            if listener.wants(queues):
                listener.call(set(queues))
        return 0
