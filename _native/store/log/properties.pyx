"""Selected properties of a record, found without decoding the others: for filters in scans."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memchr

from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, Text, check_record


def property_values(const uint8_t[::1] record not None, dict names not None):
    # type: (bytes | bytearray | memoryview, dict[bytes, str]) -> dict[str, str]
    """The properties of a record that are in `names` (UTF-8 → key of the result); the last of equal names
    wins. Empty for bytes that are not a record."""
    cdef Py_ssize_t length = record.shape[0]
    cdef RecordView view
    if check_record(&record[0] if length else NULL, length, length, False, &view) != RECORD_OK:
        return {}
    return values_of(&view.properties, names)


cdef dict values_of(const Text *properties, dict names):
    """The properties that are in `names`; the last of equal names wins."""
    cdef const uint8_t *at = properties.at
    cdef const uint8_t *end = at + properties.length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef dict found = {}
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop is NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value is not NULL and value > at and value + 1 < stop:
            name = names.get(PyBytes_FromStringAndSize(<const char *> at, value - at))
            if name is not None:
                found[name] = PyUnicode_DecodeUTF8(<const char *> value + 1, stop - value - 1, "replace")
        at = stop + 1
    return found
