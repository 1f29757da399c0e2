# A host of a record as text: `192.0.2.1:10911`, `[2001:db8::1]:10911`. Any thread.

from libc.stdint cimport uint8_t

from firearrow._native.store.log.record cimport Text

cdef enum:
    HOST_TEXT_BYTES_MAX = 64      # [ 45 ]:-2147483648 and the zero behind

cdef Py_ssize_t write_host(const Text *host, uint8_t *to) noexcept nogil   # bytes written
