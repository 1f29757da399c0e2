"""Mappings: a limit on mapped queue files (see mmap_budget.pxd). Knows no entries."""

from posix.mman cimport MADV_RANDOM, madvise

from firearrow._native.store.files.segment cimport Segment

MAPS_SHARE = 2
FILES_MAX = 32768


def default_files_max():
    """1 / MAPS_SHARE of the mappings that the system grants a process, at most FILES_MAX."""
    try:
        with open("/proc/sys/vm/max_map_count", "rb") as granted:
            found = int(granted.read()) // MAPS_SHARE
    except (OSError, ValueError):
        found = FILES_MAX
    return min(found, FILES_MAX)


cdef class Mappings:
    """The mapped queue files, at most `files_max` (0: half of what the system allows)."""

    def __cinit__(self, Py_ssize_t files_max=0):
        # type: (...) -> None
        self.files_max = files_max if files_max > 0 else default_files_max()
        self.files = []

    def __len__(self):
        # type: (...) -> int
        return len(self.files)

    cdef int map(self, Segment file) except -1:
        """Map a file for writing; may evict another one. OSError.

        MADV_RANDOM switches read-around off: it reads up to 8 MB around a page, so that with many queues and
        little memory each queue's pages push out those of all others (1.5 ms a message).
        """
        if len(self.files) >= self.files_max:
            self.evict()
        file.ensure_mapped(True)
        madvise(file.map, file.size, MADV_RANDOM)  # only advice: errors do not matter
        self.files.append(file)
        return 0

    cdef int evict(self) except -1:
        """Two rounds find a file that was not touched, unless Python views pin all of them."""
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
    """0 or a negative errno. Pins the mapping during the sync; the pages of a file that was unmapped are
    synced through the file."""
    cdef int status
    if file.map is NULL:
        return file.sync_closed() if file.writable_map else 0
    file.views += 1
    with nogil:
        status = file.sync_map(file.size)
    file.views -= 1
    return status
