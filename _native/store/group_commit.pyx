"""GroupCommit: a thread that fsyncs the log on request (see group_commit.pxd)."""

import os
import threading
from collections import deque

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from posix.unistd cimport close, read, write

from firearrow._native.base.clock cimport nanoseconds

from firearrow._native.store.files.sync_gate cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.files.sync_gate cimport sync_through

cdef extern from "<pthread.h>" nogil:
    int pthread_cond_init(pthread_cond_t *cond, const void *attributes)
    int pthread_cond_destroy(pthread_cond_t *cond)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
    int pthread_cond_signal(pthread_cond_t *cond)

cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int first, int flags)


# type: FLUSH_BOUNDS_US: tuple[int, ...]
FLUSH_BOUNDS_US = (100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000)


cdef class GroupCommit:
    """A thread that fsyncs the log on request."""

    def __cinit__(self, MessageStore store not None, Histogram flushes=None):
        # type: (...) -> None
        """`flushes` gets the length of each sync, in microseconds. OSError: no descriptor left."""
        self.store = store
        self.flushes = Histogram(FLUSH_BOUNDS_US) if flushes is None else flushes
        store.log.synced_often = True
        self.held = deque()
        self.sync_gate = store.log.sync_gate
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.requested, NULL)
        self.signal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.signal < 0:
            raise OSError(errno, os.strerror(errno))
        self.thread = threading.Thread(target=self.run, name="group-commit", daemon=True)

    def __dealloc__(self):
        PyMem_RawFree(self.filling.fds)
        PyMem_RawFree(self.syncing.fds)
        if self.signal >= 0:
            close(self.signal)
        pthread_cond_destroy(&self.requested)
        pthread_mutex_destroy(&self.lock)

    def start(self):
        # type: (...) -> None
        self.thread.start()

    def is_alive(self):
        # type: (...) -> bool
        """False if the thread ended, neither by `stop` nor with an error that `collect_synced` raises."""
        return self.stopping or self.error < 0 or self.thread.is_alive()

    def fileno(self):
        # type: (...) -> int
        """Readable when a sync has ended: call `collect_synced`."""
        return self.signal

    def request_sync(self):
        # type: (...) -> None
        """Sync everything written so far, soon."""
        cdef Segment segment
        pthread_mutex_lock(&self.lock)
        try:
            for segment in self.store.log.unflushed():
                if self.filling.count == 0 or segment.base > self.filling.base:
                    self.add(segment)
            self.filling.until = self.store.log.written
        finally:
            pthread_mutex_unlock(&self.lock)
        pthread_cond_signal(&self.requested)

    cdef int add(self, Segment segment) except -1:
        cdef SyncBatch *batch = &self.filling
        if batch.count == batch.capacity:
            larger = <int *> PyMem_RawRealloc(batch.fds, (batch.capacity + 8) * sizeof(int))
            if larger is NULL:
                raise MemoryError()
            batch.fds = larger
            batch.capacity += 8
        self.held.append((batch.number, segment))
        segment.syncing += 1
        batch.fds[batch.count] = segment.fd
        batch.count += 1
        batch.base = segment.base
        return 0

    def collect_synced(self):
        # type: (...) -> int
        """The offset up to which the log is durable. OSError: a sync failed, and the thread has ended."""
        cdef uint64_t count
        cdef int64_t done, number
        cdef int error
        read(self.signal, &count, sizeof(count))
        pthread_mutex_lock(&self.lock)
        done, number, error = self.done, self.done_number, self.error
        pthread_mutex_unlock(&self.lock)
        if error < 0:
            fault = OSError(-error, os.strerror(-error))
            self.store.mark_suspect(fault)
            raise fault
        while self.held and self.held[0][0] <= number:
            (<Segment> self.held.popleft()[1]).syncing -= 1
        self.store.log.synced(done)
        return done

    def stop(self):
        # type: (...) -> None
        """Serve the last request, then end the thread."""
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_mutex_unlock(&self.lock)
        pthread_cond_signal(&self.requested)
        if self.thread.is_alive():
            self.thread.join()

    # ---- the thread ----

    def run(self):
        with nogil:
            self.work()

    cdef void work(self) noexcept nogil:
        cdef int status = 0
        cdef int n
        cdef uint64_t one = 1
        cdef int64_t began
        while status == 0:
            pthread_mutex_lock(&self.lock)
            while self.filling.count == 0 and not self.stopping:
                pthread_cond_wait(&self.requested, &self.lock)
            self.filling, self.syncing = self.syncing, self.filling
            self.filling.number = self.syncing.number + 1
            self.filling.count = 0
            pthread_mutex_unlock(&self.lock)
            if self.syncing.count == 0:
                return
            began = nanoseconds()
            for n in range(self.syncing.count):
                if status == 0:
                    status = sync_through(self.sync_gate, self.syncing.fds[n])
            self.flushes.add((nanoseconds() - began) // 1000, 1)
            pthread_mutex_lock(&self.lock)
            if status == 0:
                self.done, self.done_number = self.syncing.until, self.syncing.number
            else:
                self.error = status
            pthread_mutex_unlock(&self.lock)
            write(self.signal, &one, sizeof(one))
