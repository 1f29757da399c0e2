"""News: who hears that queues have messages that readers could not see before (see news.pxd)."""


cdef class Listener:
    pass


cdef class News:
    def __init__(self, Holds holds=None):
        self.holds = holds
        self.topics = set()
        self.listeners = []

    def listen(self, call, *, topics=(), crowd=()):
        cdef Listener listener = Listener.__new__(Listener)
        listener.call, listener.topics, listener.crowd = call, frozenset(topics), crowd
        self.topics.update(listener.topics)
        self.listeners.append(listener)

    def __call__(self, queues):
        self.tell(list(queues))

    cdef int tell(self, list queues) except -1:
        cdef Listener listener
        cdef set awaited = None
        cdef tuple queue
        if self.holds is not None and self.holds.waiting:
            for queue in queues:
                self.holds.hear(queue)
        if self.topics:
            for queue in queues:
                if queue[0] in self.topics:
                    awaited = awaited or set()
                    awaited.add(queue[0])
        for listener in self.listeners:
            if listener.crowd or (awaited is not None and not listener.topics.isdisjoint(awaited)):
                listener.call(set(queues))
        return 0
