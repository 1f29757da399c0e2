"""Dispatch: queue entries and index keys of records (see dispatcher.pxd), by Apache's rules."""

import os
from contextlib import suppress

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memmove

from firearrow._native.base.memory cimport prefetch_write
from firearrow._native.store.log.batch_consume_queue cimport (
    find_entry, is_batch, messages_of, next_offset, put_batch,
)
from firearrow._native.store.log.queue_check cimport (
    delete_files, is_lite, is_valid_batch, is_valid_entry, points_to, restart_queue,
)
from firearrow._native.store.log.consume_queue cimport ConsumeQueue, PendingFiles
from firearrow._native.base.hash cimport java_hash_more
from firearrow._native.store.log.key_index cimport KeyHashes, keys_of
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.files.mmap_budget cimport Mappings
from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.files.layout cimport (
    BATCH_ENTRY_BYTES, ENTRY_AT_SIZE, ENTRY_BYTES, PRE_BLANK_SIZE, SYS_INNER_BATCH, SYS_PREPARED,
    SYS_ROLLBACK, SYS_TRANSACTION,
)
from firearrow._native.store.log.record cimport Properties, RecordView, Text, scan_properties
from firearrow._native.base.vector cimport grown

from firearrow._native.store.files.parallel import for_each_parallel
from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.log.results import PutRefused, PutStatus
from firearrow._native.store.files.segment_files import move_other_kind, repaired_queues
from firearrow._native.store.log.consume_queue import FILE_SIZE_KEYS
from firearrow._native.store.log.entry_repair_log import EntryRepairs
from firearrow._native.store.log.queue_check import LITE_PREFIX

MULTI_DIGITS_MAX = 12
QUEUE_ID_MAX = 65535
LMQ_PREFIX = b"%LMQ%"
LMQ_PREFIX_TEXT = os.fsdecode(LMQ_PREFIX)

cdef enum:
    RECENT = 4096


def is_file_name(bytes name not None):
    # type: (...) -> bool
    """Whether a topic is safe as a folder name: topics in records are not trusted."""
    return 0 < len(name) <= 255 and b"/" not in name and b"\0" not in name and name not in (b".", b"..")


def multi_names(bytes names not None, bytes entries not None):
    # type: (...) -> list[tuple[bytes, int]]
    """(queue name, entry) pairs of INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET; invalid ones are
    skipped."""
    return [
        (name, int(entry))
        for name, entry in zip(names.split(b","), entries.split(b","))
        if is_file_name(name) and entry.isdigit() and len(entry) <= MULTI_DIGITS_MAX
    ]


cdef int by_end(const void *one, const void *other) noexcept nogil:
    cdef int64_t end = (<const Unconfirmed *> one).end
    cdef int64_t other_end = (<const Unconfirmed *> other).end
    return (end > other_end) - (end < other_end)


cdef list multi_entries(const Properties *properties):
    return multi_names(
        PyBytes_FromStringAndSize(<const char *> properties.multi_names.at, properties.multi_names.length),
        PyBytes_FromStringAndSize(
            <const char *> properties.multi_offsets.at, properties.multi_offsets.length
        ),
    )


cdef inline bint begins(const Text *topic, const char *prefix, Py_ssize_t length) noexcept nogil:
    return topic.length >= length and memcmp(topic.at, prefix, length) == 0


cdef bint allows_multi(const Text *topic) noexcept nogil:
    """Whether LMQs that the record names get an entry: not for retries, dead letters, system topics and
    delayed messages."""
    return not (
        begins(topic, b"%RETRY%", 7) or begins(topic, b"%DLQ%", 5) or begins(topic, b"rmq_sys_", 8)
        or (topic.length == 19 and begins(topic, b"SCHEDULE_TOPIC_XXXX", 19))
    )


cdef inline int32_t keys_begin(ConsumeQueue queue, const Text *topic) noexcept:
    """Hash of `topic#`: cached in the queue, computed for a record without a queue."""
    return queue.topic_key_hash if queue is not None else keys_of(topic.at, topic.length)


cdef bint is_deleted(dict deletions, bytes topic, const RecordView *view) except -1:
    """Whether a record is of a topic that was deleted since; see store/files/config_files.py."""
    cdef int64_t log_end, ms
    log_end, ms = deletions.get(topic, (0, 0))
    return view.physical_offset < log_end and view.store_time <= ms


cdef class Dispatch:
    """Queue entries and index keys of records, staged and recovered."""

    def __cinit__(
        self, root, int64_t queue_file_bytes, int64_t batch_file_bytes, KeyIndex index, delay_levels_ms,
        bint lmq,
    ):
        # type: (str, int, int, KeyIndex | None, tuple[int, ...], bool) -> None
        self.folder = os.path.join(root, "consumequeue")
        self.batch_folder = os.path.join(root, "batchconsumequeue")
        self.queue_file_bytes = (queue_file_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES * ENTRY_BYTES
        self.batch_file_bytes = (
            (batch_file_bytes + BATCH_ENTRY_BYTES - 1) // BATCH_ENTRY_BYTES * BATCH_ENTRY_BYTES
        )
        self.index = index
        self.delay_levels_ms = tuple(delay_levels_ms)
        self.lmq = lmq
        self.queues = {}
        self.batch_topics, self.plain_topics = set(), frozenset()
        self.deletions = {}
        self.trims = {}
        self.pending, self.changed, self.known_filled = PendingFiles(), [], -1
        self.hashes = KeyHashes.__new__(KeyHashes)
        self.mappings = Mappings()
        self.entry_repairs = EntryRepairs()

    def __dealloc__(self):
        PyMem_Free(self.staged)
        PyMem_Free(self.unconfirmed)

    def load(self, kinds not None, repair_log not None):
        # type: (dict[bytes, bool], RepairLog) -> None
        """Open every queue that has a folder and repair its files. `kinds`: topic → whether it has batch
        queues, as far as that is known. StoreForeign: all queue files have another size. OSError."""
        make_dirs(self.folder)
        folders = set()
        if os.path.isdir(self.batch_folder):
            folders = {os.fsencode(name) for name in os.listdir(self.batch_folder)}
        self.batch_topics = {topic for topic in folders if kinds.get(topic, True)}
        self.batch_topics.update(topic for topic, batch in kinds.items() if batch)
        self.plain_topics = frozenset(topic for topic, batch in kinds.items() if not batch)
        move_other_kind(self.folder, self.batch_topics, repair_log)
        self.load_queues(self.folder, self.queue_file_bytes, ENTRY_BYTES, repair_log)
        if folders:
            move_other_kind(self.batch_folder, self.plain_topics, repair_log)
            self.load_queues(self.batch_folder, self.batch_file_bytes, BATCH_ENTRY_BYTES, repair_log)

    def load_queues(self, folder, file_bytes, entry_bytes, repair_log):
        key = FILE_SIZE_KEYS[entry_bytes]
        for topic, queue_id, positions in repaired_queues(
            folder, file_bytes, QUEUE_ID_MAX, key, repair_log
        ):
            queue = ConsumeQueue(folder, topic, queue_id, file_bytes, self.mappings, entry_bytes)
            (<ConsumeQueue> queue).load(positions)
            self.adopt(queue)
            self.queues[os.fsencode(topic), queue_id] = queue
            self.lmq_count += topic.startswith(LMQ_PREFIX_TEXT)

    @property
    def is_indexed(self):
        # type: (...) -> bool
        return self.index is not None

    @property
    def newest_key(self):
        # type: (...) -> int
        """Physical offset of the newest record with a key; 0 if there is none, -1 without an index."""
        return -1 if self.index is None else self.index.last[1]

    @property
    def index_files(self):
        # type: (...) -> int
        return 0 if self.index is None else len(self.index.files)

    def all_queues(self):
        # type: (...) -> list[ConsumeQueue]
        """The queues of now. Any thread: one call of C, which no other thread can interrupt. `queues` is the
        appender's."""
        return list(self.queues.values())

    cdef ConsumeQueue queue_of(self, bytes topic, int32_t queue_id, bint make):
        """The queue; None if it does not exist and `make` is false. Its first entry creates its files."""
        found = self.queues.get((topic, queue_id))
        if found is None and make:
            found = self.queues[topic, queue_id] = self.new_queue(topic, queue_id)
            self.lmq_count += topic.startswith(LMQ_PREFIX)
        return <ConsumeQueue> found

    cdef ConsumeQueue new_queue(self, bytes topic, int32_t queue_id):
        """An empty queue of the topic's kind, for `queues`."""
        cdef ConsumeQueue queue
        name = os.fsdecode(topic)
        folder, file_bytes, entry_bytes = self.folder, self.queue_file_bytes, ENTRY_BYTES
        if topic in self.batch_topics:
            folder, file_bytes, entry_bytes = self.batch_folder, self.batch_file_bytes, BATCH_ENTRY_BYTES
        queue = ConsumeQueue(folder, name, queue_id, file_bytes, self.mappings, entry_bytes)
        self.adopt(queue)
        return queue

    cdef int adopt(self, ConsumeQueue queue) except -1:
        queue.entry_repairs, queue.changed = self.entry_repairs, self.changed
        queue.pending = self.pending if is_lite(queue) else None
        return 0

    # ---- appending ----

    cdef int stage(
        self, ConsumeQueue queue, const Text *topic, const Properties *properties, int64_t physical_offset,
        int32_t size, int64_t store_time,
    ) except -1:
        """Stage one record's entry and keys; `queue` None: keys only. OSError: nothing is staged."""
        cdef KeyHashes hashes = self.hashes
        cdef int32_t keys = 0
        cdef const uint8_t *slot = NULL
        cdef Staged *plan
        self.staged = <Staged *> grown(self.staged, &self.staged_capacity, self.staged_count, sizeof(Staged))
        if self.index is not None:
            keys = hashes.add_keys(keys_begin(queue, topic), properties)
            self.index.ensure_capacity(hashes.count + keys)
        if queue is not None:
            slot = queue.next_slot()
        hashes.count += keys
        plan = &self.staged[self.staged_count]
        plan.slot = slot
        plan.queue = <void *> queue if queue is not None else NULL
        plan.physical_offset = physical_offset
        plan.size = size
        plan.store_time = store_time
        plan.tags_code = self.tags_code_of(topic, properties, store_time)
        plan.hashes = keys
        self.staged_count += 1
        if self.lmq and properties.multi_offsets.length and queue is not None and allows_multi(topic):
            self.stage_multi(properties, physical_offset, size)
        return 0

    cdef int stage_multi(self, const Properties *properties, int64_t physical_offset, int32_t size) except -1:
        """Stage an entry in each LMQ that the record names, at the offset that it states. PutRefused,
        OSError: nothing of the record is staged."""
        cdef Py_ssize_t first = self.staged_count - 1
        cdef const uint8_t *slot
        cdef Staged *plan
        cdef ConsumeQueue queue
        try:
            for name, entry in multi_entries(properties):
                queue = self.queue_of(name, 0, True)
                if not name.startswith(LMQ_PREFIX) or entry != queue.next_entry:
                    raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "INNER_MULTI_QUEUE_OFFSET")
                self.staged = <Staged *> grown(
                    self.staged, &self.staged_capacity, self.staged_count, sizeof(Staged)
                )
                slot = queue.next_slot()
                plan = &self.staged[self.staged_count]
                plan[0] = self.staged[first]
                plan.slot = slot
                plan.queue = <void *> queue
                plan.hashes = 0
                self.staged_count += 1
        except BaseException:
            self.hashes.count -= self.staged[first].hashes
            while self.staged_count > first:
                self.staged_count -= 1
                (<ConsumeQueue> self.staged[self.staged_count].queue).next_entry -= 1
            raise
        return 0

    cdef int apply(self, bint confirmed) except -1:
        """After the log was written: append the staged entries and keys."""
        cdef Py_ssize_t n, key = 0
        cdef int32_t _left
        cdef Staged *plan
        self.prefetch()
        for n in range(self.staged_count):
            plan = &self.staged[n]
            if plan.queue is not NULL:
                (<ConsumeQueue> plan.queue).append(plan.physical_offset, plan.size, plan.tags_code)
                if (<ConsumeQueue> plan.queue).end_entry == 1 and self.known_filled >= 0:
                    self.known_filled += not is_lite(<ConsumeQueue> plan.queue)
                if confirmed:
                    (<ConsumeQueue> plan.queue).visible += 1
                else:
                    self.wait(plan.queue, plan.physical_offset + plan.size)
            for _left in range(plan.hashes):
                self.index.put(self.hashes.at[key], plan.physical_offset, plan.store_time)
                key += 1
        self.staged_count = self.hashes.count = 0
        return 0

    cdef void count_again(self) noexcept:
        """Call after queues got or lost entries otherwise than by `apply` and `forget`."""
        self.known_filled = -1

    @property
    def filled(self):
        # type: (...) -> int
        """The number of queues with entries but those of lite topics, which are deleted between two
        checkpoints. Any thread."""
        cdef ConsumeQueue queue
        cdef int64_t count = 0
        if self.known_filled < 0:
            for queue in self.all_queues():
                count += queue.end_entry > 0 and not is_lite(queue)
            self.known_filled = count
        return self.known_filled

    cdef list take_changed(self):
        """The queues that are not synced. One by one: others may add themselves meanwhile."""
        cdef list taken = []
        while self.changed:
            taken.append(self.changed.pop())
        return taken

    cdef int make_files(self) except -1:
        """Before a rebuild: all queues are in files from here on, until `pending` is no longer suspended.
        OSError."""
        self.pending.suspended = True
        self.pending.begin_turn(True)
        self.pending.make(INFINITY)
        return 0

    cdef void prefetch(self) noexcept:
        """Prefetch the memory of all staged entries and slots: with many queues and keys each is a cache
        miss."""
        cdef Py_ssize_t n
        for n in range(self.staged_count):
            prefetch_write(self.staged[n].slot)
        if self.index is not None:
            self.index.prefetch(self.hashes.at, self.hashes.count)

    cdef int wait(self, void *queue, int64_t end) except -1:
        if self.unconfirmed_from > 4096 and self.unconfirmed_from * 2 > self.unconfirmed_count:
            self.unconfirmed_count -= self.unconfirmed_from
            memmove(
                self.unconfirmed, self.unconfirmed + self.unconfirmed_from,
                self.unconfirmed_count * sizeof(Unconfirmed),
            )
            self.unconfirmed_from = 0
        self.unconfirmed = <Unconfirmed *> grown(
            self.unconfirmed, &self.unconfirmed_capacity, self.unconfirmed_count, sizeof(Unconfirmed)
        )
        self.unconfirmed[self.unconfirmed_count].queue = queue
        self.unconfirmed[self.unconfirmed_count].end = end
        self.unconfirmed_count += 1
        return 0

    cdef void drop_staged(self) noexcept:
        """Release the reserved entries."""
        cdef Py_ssize_t n
        cdef ConsumeQueue queue
        for n in range(self.staged_count):
            if self.staged[n].queue is not NULL:
                queue = <ConsumeQueue> self.staged[n].queue
                queue.next_entry = queue.end_entry
        self.staged_count = self.hashes.count = 0

    cdef int confirm(self, int64_t physical_offset) noexcept:
        """Make the entries visible whose record ends at or below this offset."""
        cdef Unconfirmed *waiting
        while self.unconfirmed_from < self.unconfirmed_count:
            waiting = &self.unconfirmed[self.unconfirmed_from]
            if waiting.end > physical_offset:
                return 0
            if waiting.queue is not NULL:
                (<ConsumeQueue> waiting.queue).visible += 1
            self.unconfirmed_from += 1
        self.unconfirmed_from = self.unconfirmed_count = 0
        return 0

    cdef int hide(self, int64_t physical_offset) except -1:
        """Make the entries whose record ends above this offset wait until they are confirmed."""
        cdef ConsumeQueue queue
        cdef const uint8_t *at
        cdef int64_t end
        self.unconfirmed_from = self.unconfirmed_count = 0
        for queue in self.queues.values():
            queue.visible = queue.end_entry
            end = queue.max_physical
            while queue.max_physical > physical_offset and queue.visible > queue.min_entry:
                at = queue.entry_at(queue.visible - 1)
                if at is NULL:
                    break
                if get_i32(at + ENTRY_AT_SIZE) != PRE_BLANK_SIZE:  # a blank one waits with the next
                    end = get_i64(at) + get_i32(at + ENTRY_AT_SIZE)
                if end <= physical_offset:
                    break
                self.wait(<void *> queue, end)
                queue.visible -= 1
        qsort(self.unconfirmed, self.unconfirmed_count, sizeof(Unconfirmed), by_end)
        return 0

    def hidden_queues(self):
        """(topic, queue id) of the queues with entries that wait."""
        cdef ConsumeQueue queue
        return [
            (queue.topic, queue.queue_id)
            for queue in self.queues.values()
            if queue.visible < queue.end_entry
        ]

    def sync(self):
        """Sync the entries of all queues and their folders; another thread may call it. Returns how many
        queues had unsynced data. OSError."""
        cdef ConsumeQueue queue
        cdef list dirty = self.take_changed()
        named = []

        def sync_entries(each):
            if each.sync():
                named.append(each)

        def sync_folder(folder):
            with suppress(FileNotFoundError):  # its topic was deleted concurrently
                fsync_dir(folder)

        try:
            for_each_parallel(sync_entries, dirty)
            folders = set()
            for queue in named:
                folders.update(queue.folders())
            for_each_parallel(sync_folder, list(folders))
            return len(dirty)
        except BaseException:
            for queue in named:
                queue.named = True
                queue.mark_dirty()
            self.changed.extend([queue for queue in dirty if queue.dirty])
            raise

    def forget(self, bytes topic not None, int64_t queue_id=-1, bint durable=True):
        # type: (...) -> int
        """Delete the queues of a topic, or one of them, none of which may have staged entries; returns how
        many. Without `durable`, a power cut may bring them back."""
        cdef Py_ssize_t n
        self.forgotten += 1
        self.recent = None
        if queue_id >= 0:
            gone = [(topic, queue_id)] if (topic, queue_id) in self.queues else []
        else:
            gone = [key for key in self.queues if key[0] == topic]
        for key in gone:
            queue = self.queues[key]
            if self.known_filled > 0 and (<ConsumeQueue> queue).end_entry > 0:
                self.known_filled -= not is_lite(<ConsumeQueue> queue)
            for n in range(self.unconfirmed_from, self.unconfirmed_count):
                if self.unconfirmed[n].queue == <void *> queue:
                    self.unconfirmed[n].queue = NULL
            queue.delete()
            del self.queues[key]
            self.lmq_count -= topic.startswith(LMQ_PREFIX)
        path = os.path.dirname(queue.folder) if gone else ""
        if gone and os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
            if durable:
                fsync_dir(os.path.dirname(path))
        return len(gone)

    # ---- recovery ----

    cdef int recovered(self, const RecordView *view, int64_t indexed) except -1:
        """Add the missing entry and keys of a record that recovery found; one of a deleted topic has no
        entry. OSError."""
        cdef Properties properties
        cdef Py_ssize_t n
        cdef int transaction = view.sys_flag & SYS_TRANSACTION
        cdef int64_t tags_code
        cdef bint deleted = False
        cdef bytes name
        cdef ConsumeQueue queue = None
        scan_properties(&view.properties, &properties)
        if transaction != SYS_PREPARED and transaction != SYS_ROLLBACK:
            tags_code = self.tags_code_of(&view.topic, &properties, view.store_time)
            if self.deletions:
                name = PyBytes_FromStringAndSize(<const char *> view.topic.at, view.topic.length)
                deleted = is_deleted(self.deletions, name, view)
            if not deleted and self.has_its_kind(view):
                queue = self.find_queue(&view.topic, view.queue_id)
            if queue is not None and is_batch(queue):
                self.restore_batch(queue, view, tags_code)
            elif queue is not None:
                self.restore(queue, view.queue_offset, view.physical_offset, view.size, tags_code)
            if (
                (deleted or queue is not None)
                and self.lmq and properties.multi_offsets.length and allows_multi(&view.topic)
            ):
                self.restore_multi(view, &properties, tags_code, deleted)
        if self.index is not None and transaction != SYS_ROLLBACK and view.physical_offset > indexed:
            for n in range(self.hashes.add_keys(keys_begin(queue, &view.topic), &properties)):
                self.index.put(self.hashes.at[self.hashes.count + n], view.physical_offset, view.store_time)
        return 0

    cdef ConsumeQueue find_queue(self, const Text *topic, int32_t queue_id):
        """The queue of a recovered record, created if needed; None if topic or queue id is invalid. A cache
        by hash keeps the recent ones: a log of small records needs millions of look-ups."""
        cdef unsigned int slot = <unsigned int> java_hash_more(queue_id, topic.at, topic.length) % RECENT
        cdef bytes name
        if self.recent is None:
            self.recent = [None] * (2 * RECENT)
        name = <bytes> self.recent[2 * slot]
        if (
            name is not None
            and len(name) == topic.length
            and memcmp(<const char *> name, topic.at, topic.length) == 0
        ):
            if (<ConsumeQueue> self.recent[2 * slot + 1]).queue_id == queue_id:
                return <ConsumeQueue> self.recent[2 * slot + 1]
        name = PyBytes_FromStringAndSize(<const char *> topic.at, topic.length)
        if not is_file_name(name) or not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        self.recent[2 * slot], self.recent[2 * slot + 1] = name, self.queue_of(name, queue_id, True)
        return <ConsumeQueue> self.recent[2 * slot + 1]

    cdef int restore(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """Append one recovered entry unless it exists. Counts gaps: queues must then be compared with the
        log. OSError."""
        if self.queue_rebuild is not None:
            self.queue_rebuild.add_record(queue, entry, physical_offset, size, tags_code)
            return 0
        if physical_offset < queue.max_physical:
            return 0
        if entry == 0 and queue.end_entry > 0 and is_lite(queue) and not points_to(queue, 0, physical_offset):
            delete_files(queue)               # it had expired, and was created again
        if (
            entry < queue.end_entry
            or (entry > queue.end_entry > 0 and queue.files)
            or not is_valid_entry(entry, physical_offset)
        ):
            self.gaps += (
                not queue.min_entry <= entry < queue.end_entry or not points_to(queue, entry, physical_offset)
            )
            return 0
        if entry > queue.end_entry:
            self.late_starts += not is_lite(queue)  # a lite topic may have expired before
            restart_queue(queue, entry)
        queue.append(physical_offset, size, tags_code)
        queue.visible = queue.end_entry
        return 0

    cdef bint has_its_kind(self, const RecordView *view) except -1:
        """Whether the record fits the kind of its topic's queues: an inner batch needs a batch queue. It also
        shows which kind a topic has that is in no file: then its plain queues are deleted, for another walk.
        """
        cdef bytes name
        if not view.sys_flag & SYS_INNER_BATCH:
            return True
        name = PyBytes_FromStringAndSize(<const char *> view.topic.at, view.topic.length)
        if name in self.batch_topics:
            return True
        if name in self.plain_topics or not is_file_name(name):
            return False
        self.batch_topics.add(name)
        if self.forget(name):
            self.gaps += 1
            self.kinds_changed = True
        return True

    cdef int restore_batch(self, ConsumeQueue queue, const RecordView *view, int64_t tags_code) except -1:
        """As `restore`, in a batch queue. OSError."""
        cdef int64_t count = messages_of(view), base = view.queue_offset, entry
        if self.queue_rebuild is not None:
            self.queue_rebuild.add_batch(queue, base, count, view, tags_code)
            return 0
        if view.physical_offset < queue.max_physical:
            return 0
        if count == 0 or not is_valid_batch(base, view.physical_offset):
            self.gaps += 1
            return 0
        if queue.end_entry > queue.min_entry and base != next_offset(queue):
            entry = find_entry(queue, base)
            self.gaps += entry < 0 or not points_to(queue, entry, view.physical_offset)
            return 0
        if queue.end_entry == queue.min_entry and base != next_offset(queue):
            self.late_starts += 1
            delete_files(queue)
        put_batch(queue.slot_at(queue.end_entry), view.store_time, base, count)
        queue.append(view.physical_offset, view.size, tags_code)
        queue.visible = queue.end_entry
        return 0

    cdef void lost(self, int64_t length) noexcept:
        """`length` bytes of the log hold no record."""
        if self.queue_rebuild is not None:
            self.queue_rebuild.lost_bytes += length

    cdef int restore_multi(
        self, const RecordView *view, const Properties *properties, int64_t tags_code, bint deleted
    ) except -1:
        """`deleted`: the record's topic was deleted since, with its lite topics. OSError."""
        cdef bytes lite = os.fsencode(LITE_PREFIX)
        for name, entry in multi_entries(properties):
            if (deleted and name.startswith(lite)) or (
                self.deletions and is_deleted(self.deletions, name, view)
            ):
                continue
            queue_id = 0 if name.startswith(LMQ_PREFIX) else view.queue_id
            self.restore(
                self.queue_of(name, queue_id, True), entry, view.physical_offset, view.size, tags_code
            )
        return 0

    # ---- tags code ----

    cdef int64_t tags_code_of(
        self, const Text *topic, const Properties *properties, int64_t store_time
    ) noexcept:
        """Java's hash of the TAGS value; in the schedule topic the delivery time."""
        cdef int64_t level = 0
        cdef Py_ssize_t n
        if (
            properties.delay.length
            and topic.length == 19
            and memcmp(topic.at, b"SCHEDULE_TOPIC_XXXX", 19) == 0
        ):
            for n in range(min(properties.delay.length, <Py_ssize_t> 9)):
                if not c'0' <= properties.delay.at[n] <= c'9':
                    level = 0
                    break
                level = level * 10 + properties.delay.at[n] - c'0'
            if level > 0:
                level = min(level, <int64_t> len(self.delay_levels_ms))
                return store_time + (<int64_t> self.delay_levels_ms[level - 1] if level > 0 else 1000)
        return java_hash_more(0, properties.tags.at, properties.tags.length)
