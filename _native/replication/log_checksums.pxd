# LogChecksums: CRC-32C of ranges of the log, kept for each whole MiB. Owner: the replication of a master or a
# slave. Reads the mapped segments, without the GIL. Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t, uint32_t

from firearrow._native.store.message_store cimport MessageStore


@cython.final
cdef class LogChecksums:
    cdef MessageStore store
    cdef dict kept                        # number of a MiB → its CRC, in the order of computing

    cdef uint32_t continued(self, uint32_t crc, int64_t start, int64_t end) except? 0
    cdef uint32_t whole_mib(self, int64_t number) except? 0
