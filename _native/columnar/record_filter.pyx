"""RecordFilter: selects records by topic, tag, key, unique id and time (see record_filter.pxd)."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr

from firearrow._native.columnar.record_spans cimport Spans
from firearrow._native.columnar.string_set cimport StringSet
from firearrow._native.store.files.layout cimport KEY_SEPARATOR
from firearrow._native.store.log.record cimport RECORD_OK, Properties, RecordView, Text, scan_properties

from firearrow._native.store.log.record import RecordError

cdef int64_t FIRST_MS = -0x7FFFFFFFFFFFFFFF
cdef int64_t LAST_MS = 0x7FFFFFFFFFFFFFFF


cdef StringSet set_of(texts, str name):
    if texts is None:
        return None
    if isinstance(texts, str):
        raise TypeError(f"{name}: a collection of str is wanted, for one text write {{text}}")
    return StringSet(texts)


@cython.final
cdef class RecordFilter:
    """Selects the records that meet all conditions. A collection holds the accepted strings; `keys`: one
    of the message's keys must be in it.

    Times are ms since 1970, `…_until` is exclusive. No record matches an empty collection; None: no
    condition.
    """

    def __cinit__(
        self,
        *,
        topics=None,  # type: Collection[str] | None
        tags=None,  # type: Collection[str] | None
        keys=None,  # type: Collection[str] | None
        unique_ids=None,  # type: Collection[str] | None
        stored_from=None,  # type: int | None
        stored_until=None,  # type: int | None
        born_from=None,  # type: int | None
        born_until=None,  # type: int | None
    ):
        # type: (...) -> None
        """TypeError: a collection is a single str."""
        times = (stored_from, stored_until, born_from, born_until)
        self.topics = set_of(topics, "topics")
        self.tags = set_of(tags, "tags")
        self.keys = set_of(keys, "keys")
        self.unique_ids = set_of(unique_ids, "unique_ids")
        self.stored_from = FIRST_MS if stored_from is None else stored_from
        self.stored_until = LAST_MS if stored_until is None else stored_until
        self.born_from = FIRST_MS if born_from is None else born_from
        self.born_until = LAST_MS if born_until is None else born_until
        self.everything = all(given is None for given in (topics, tags, keys, unique_ids, *times))

    def keep(self, Spans spans not None):
        # type: (...) -> Spans
        """The records that match, in their order, on the same window.

        RecordError: the bytes have changed since the records were found."""
        cdef Spans kept
        cdef Py_ssize_t changed
        if self.everything:
            return spans
        kept = spans.empty()
        with nogil:
            changed = self.scan(spans, kept)
        if changed >= 0:
            raise RecordError(
                f"the record at {spans.base + spans.positions[changed]} changed while it was read"
            )
        return kept

    cdef Py_ssize_t scan(self, Spans spans, Spans kept) except -2 nogil:
        """-1, or the index of a record that has changed."""
        cdef RecordView view
        cdef Py_ssize_t index
        for index in range(spans.count):
            spans.prefetch(index)
            if spans.view(index, &view) != RECORD_OK:
                return index
            if self.accepts(&view):
                kept.add(spans.positions[index], view.size)
        return -1

    cdef bint accepts(self, const RecordView *view) noexcept nogil:
        if not (self.stored_from <= view.store_time < self.stored_until):
            return False
        if not (self.born_from <= view.born_time < self.born_until):
            return False
        if self.topics is not None and not self.topics.contains(view.topic.at, view.topic.length):
            return False
        if self.tags is None and self.keys is None and self.unique_ids is None:
            return True
        return self.accepts_strings(view)

    cdef bint accepts_strings(self, const RecordView *view) noexcept nogil:
        cdef Properties found
        scan_properties(&view.properties, &found)
        if (
            self.tags is not None
            and not (found.tags.length and self.tags.contains(found.tags.at, found.tags.length))
        ):
            return False
        if self.unique_ids is not None and not (
            found.unique_key.length and self.unique_ids.contains(found.unique_key.at, found.unique_key.length)
        ):
            return False
        return self.keys is None or self.accepts_key(&found.keys)

    cdef bint accepts_key(self, const Text *keys) noexcept nogil:
        """KEYS holds several, separated by spaces."""
        cdef const uint8_t *at = keys.at
        cdef Py_ssize_t left = keys.length, length
        cdef const uint8_t *space
        while left > 0:
            space = <const uint8_t *> memchr(at, KEY_SEPARATOR, left)
            length = left if space is NULL else space - at
            if length and self.keys.contains(at, length):
                return True
            at += length + 1
            left -= length + 1
        return False
