# Which queue files are mapped, so that many thousands of queues do not use up the mappings that a process may
# have (vm.max_map_count, 65,530 as Linux comes).
#
# A file is mapped when it is first needed. At `files_max` a hand goes round: it passes files that were
# touched since it came by last, and gives the mapping of the first other one back (the clock algorithm: a
# touch is one store). Only the file that is asked for is in use while another's mapping goes: whoever borrows
# entries maps one queue at a time. Owner: dispatch; a queue that is only read has none. Thread: the
# appender's.

from firearrow._native.store.files.segment cimport Segment

cdef class Mappings:
    cdef public Py_ssize_t files_max
    cdef readonly int unmapped_count           # how many mappings went to make room
    cdef list files
    cdef Py_ssize_t hand

    cdef int map(self, Segment file) except -1
    cdef int evict(self) except -1


cdef int sync_file(Segment file) except? -1
