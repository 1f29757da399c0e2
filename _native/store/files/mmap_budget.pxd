# Mappings: limits how many queue files are mapped, so that thousands of queues do not exhaust the mappings
# of the process (vm.max_map_count, 65,530 by default on Linux).
#
# A file is mapped on first use. At `files_max` the clock algorithm evicts one: the hand skips files touched
# since its last pass and unmaps the first other one (a touch is one store). An eviction invalidates the
# pointers of other files: callers that borrow entries use one queue at a time. Owner: Dispatch; a read-only
# queue has none. Thread: the appender's.

from firearrow._native.store.files.segment cimport Segment

cdef class Mappings:
    cdef public Py_ssize_t files_max
    cdef readonly int unmapped_count           # how many files were evicted
    cdef list files
    cdef Py_ssize_t hand

    cdef int map(self, Segment file) except -1
    cdef int evict(self) except -1


cdef int sync_file(Segment file) except? -1
