"""Recovery: where the log really ends, and queues and index brought to agree with it.

Order: find the end by walking records from a safe place (each checked, with its CRC, and against its own offset); put
what queues and index miss on the way; cut the log there, zero what stands behind; only then cut queues and index.
Safe places: after a clean stop the newest record that a queue knows; after a crash the newest segment that begins before
the checkpoint; the log's beginning when queues or index are missing altogether.
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr

from firearrow._native.store.commitlog cimport CommitLog
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.dispatch cimport Dispatch
from firearrow._native.store.record cimport RECORD_BLANK, RECORD_OK, RecordView

from firearrow._native.store.faults import StoreDamaged

PROGRESS_BYTES = 256 << 20


def recover(CommitLog log not None, Dispatch dispatch not None, checkpoint, *, bint clean, bint rebuild, bint check_crc, progress):
    """Bring the parts of an opened store to agree; the log's end. StoreDamaged, OSError."""
    cdef int64_t start, end, indexed
    cdef ConsumeQueue queue
    if not log.bases:
        for topic, _ in list(dispatch.queues):
            dispatch.forget(topic)
        if dispatch.index is not None:
            dispatch.index.take_back(0)
        return 0
    start = safe_start(log, dispatch, checkpoint, clean, rebuild)
    if dispatch.index is not None:
        if not clean:
            start = max(dispatch.index.take_back(start), <int64_t> log.min_offset)
        indexed = dispatch.index.last[1] if not dispatch.index.empty else -1
    else:
        indexed = -1
    end = walk(log, dispatch, start, indexed, check_crc, progress)
    if clean:
        refuse_hole(log, end)
    log.cut(end)
    for queue in dispatch.queues.values():
        queue.truncate(end)
        queue.correct_min(log.min_offset)
    if dispatch.index is not None and dispatch.index.last[1] >= end:
        dispatch.index.take_back(end)
    return end


cdef int64_t safe_start(CommitLog log, Dispatch dispatch, checkpoint, bint clean, bint rebuild) except -1:
    cdef int64_t newest = -1
    cdef RecordView view
    cdef ConsumeQueue queue
    if rebuild:
        return log.min_offset
    if clean:
        for queue in dispatch.queues.values():
            last = queue.entries(queue.visible - 1, 1) if queue.visible > queue.min_entry and queue.max_physical > newest else []
            if last:
                newest = max(newest, last[0][0])
        if newest >= log.min_offset and log.look(newest, True, &view) == RECORD_OK and view.physical_offset == newest:
            return newest
    for base in reversed(log.bases):
        if log.look(base, True, &view) == RECORD_OK and view.physical_offset == base and view.store_time > 0:
            if clean and base <= max(newest, 0):
                return base
            if not clean and view.store_time <= checkpoint.safe_ms:
                return base
    return log.min_offset


cdef int64_t walk(CommitLog log, Dispatch dispatch, int64_t at, int64_t indexed, bint check_crc, progress) except -1:
    """Put what is missing for each good record from there; where the first bad one stands."""
    cdef RecordView view
    cdef int state
    cdef int64_t told = at
    while True:
        state = log.look(at, check_crc, &view)
        if state == RECORD_BLANK:
            at = log.segment_at(at).base + log.segment_bytes
            continue
        if state != RECORD_OK or view.physical_offset != at or is_torn(log, &view):
            return at
        dispatch.recovered(&view, indexed)
        at += view.size
        if progress is not None and at - told >= PROGRESS_BYTES:
            told = at
            progress(f"recovering: {(at - log.min_offset) >> 20} of {(log.ends - log.min_offset) >> 20} MiB of the log")


cdef bint is_torn(CommitLog log, const RecordView *view) except -1:
    """Whether the last record's end was never written: no CRC covers topic and properties, but they do not end in zeros."""
    cdef RecordView behind
    cdef int64_t end = view.physical_offset + view.size
    cdef bint empty = view.properties.length > 0 and view.properties.at[view.properties.length - 1] == 0
    if not empty and memchr(view.topic.at, 0, view.topic.length) is NULL:
        return False
    state = log.look(end, False, &behind)
    return state != RECORD_BLANK and (state != RECORD_OK or behind.physical_offset != end)


cdef int refuse_hole(CommitLog log, int64_t end) except -1:
    """After a clean stop nothing good may stand behind the end: cutting would lose it."""
    cdef RecordView view
    for base in log.bases:
        if base > end and log.look(base, True, &view) == RECORD_OK and view.physical_offset == base:
            raise StoreDamaged(
                f"the log is damaged at {end} and goes on at {base}: restore the file that holds {end} from a backup, "
                f"or move the files from {base} on away to go on without them"
            )
    return 0
