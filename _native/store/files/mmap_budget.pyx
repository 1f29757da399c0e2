"""Mappings: a bound for the mapped queue files (see mappings.pxd). Knows no entries."""

from posix.mman cimport MADV_RANDOM, madvise

from firearrow._native.store.files.segment cimport Segment

MAPS_SHARE = 2
FILES_MAX = 32768


def bound():
    """Half of the mappings that the system grants a process, at most FILES_MAX."""
    try:
        with open("/proc/sys/vm/max_map_count", "rb") as granted:
            found = int(granted.read()) // MAPS_SHARE
    except (OSError, ValueError):
        found = FILES_MAX
    return min(found, FILES_MAX)


cdef class Mappings:
    def __cinit__(self, Py_ssize_t files_max=0):
        self.files_max = files_max if files_max > 0 else bound()
        self.files = []

    def __len__(self):
        return len(self.files)

    cdef int map(self, Segment file) except -1:
        """Map it for writing; another's mapping may go. OSError.

        A page that the system took back is read alone. By default so much around it comes with it (up to 8
        MB) that where memory is short and queues are many, each one's pages push out those of all others: 1.5
        ms a message.
        """
        if len(self.files) >= self.files_max:
            self.evict()
        file.ensure_mapped(True)
        madvise(file.map, file.size, MADV_RANDOM)  # advice only
        self.files.append(file)
        return 0

    cdef int evict(self) except -1:
        """Two rounds find one that was not touched, unless all are looked at from outside."""
        cdef Segment file
        cdef Py_ssize_t _step
        for _step in range(2 * len(self.files)):
            self.hand = self.hand + 1 if self.hand + 1 < len(self.files) else 0
            file = <Segment> self.files[self.hand]
            if file.map is not NULL and (file.touched or file.views):
                file.touched = False
                continue
            if file.map is not NULL:
                file.unmap()
                self.unmapped_count += 1
            self.files[self.hand] = self.files[-1]
            self.files.pop()
            return 0
        return 0


cdef int sync_file(Segment file) except? -1:
    """0 or a negative errno; the mapping stays meanwhile. One that was given back left its pages to the
    file."""
    cdef int status
    if file.map is NULL:
        return file.sync_closed() if file.writable_map else 0
    file.views += 1
    with nogil:
        status = file.sync_map(file.size)
    file.views -= 1
    return status
