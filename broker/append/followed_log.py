"""FollowedLog: up to which offset of the log another broker did the work; `config/followedLog.json`.

A slave copies its master's progress (delay offsets, timers, transactions), but Apache's reports it a moment late:
what it delivered or committed last is in the copied log, and not in the copied progress. A broker that was a slave
therefore looks into the log before it does so again.

The file states `{"until": null}` while the broker is a slave, then the log's end at its first start as a master. It
does not matter how the role was changed. A damaged file counts as the former: all is looked up. Loop thread, at start.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from firearrow._native.protocol import fastjson, name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.message import Property
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.delay_levels")

FILE_NAME = "followedLog.json"
COPIES_MAX = 32
"""At most this many messages of one key are compared."""
EVER_MS = 1 << 62


class FollowedLog:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._file = ConfigFile(Path(store.root) / "config" / FILE_NAME)
        self.until = 0
        """Records before this offset may be another broker's work; 0: none."""
        self.was_slave = False
        """It has been a slave until this start."""

    def follow(self) -> None:
        """This broker is a slave now. StartError."""
        if self._file.load(self._read) and self.was_slave:
            return
        try:
            self._file.write(_text(None))
        except OSError as error:
            raise StartError(
                f"{self._file.path} cannot be written ({error.strerror or error}): free disk space or correct the "
                "permissions"
            ) from None

    def end_following(self) -> None:
        """This broker is a master now; sets `until`. If it cannot be written, the next start sets a later one."""
        if not self.has_followed():
            return
        self.until = self._store.written
        log.info(
            "this broker was a slave until its log ended at %d: of what is due, the former master may have done the "
            "last moments; what the log shows as done is not done again",
            self.until,
        )
        try:
            self._file.write(_text(self.until))
        except OSError as error:
            log.error("%s cannot be written: %s", self._file.path, error)

    def has_followed(self) -> bool:
        """Whether this broker has been a slave until this start; nothing is written."""
        self._file.load(self._read)
        return self.was_slave or self._file.is_older

    def _read(self, text: bytes) -> None:
        until = json_fields.members(fastjson.loads(text), FILE_NAME).get("until")
        self.until = 0 if until is None else json_fields.whole(until, "until")
        self.was_slave = until is None

    def covers(self, physical_offset: int) -> bool:
        return physical_offset < self.until

    def has_copy(self, scheduled: Record) -> bool:
        """Whether the other broker put the message into its own topic. False without a unique key or an index."""
        topic = scheduled.properties.get(Property.REAL_TOPIC)
        return topic is not None and any(
            copy.physical_offset > scheduled.physical_offset
            and copy.properties.get(Property.REAL_TOPIC) == topic
            and copy.born_timestamp == scheduled.born_timestamp
            and copy.reconsume_times == scheduled.reconsume_times
            for copy in self._copies(topic, scheduled)
        )

    def has_commit(self, half: Record) -> bool:
        """Whether the other broker committed the half message, or the one that it is a copy of: then the log has the
        final message, also if it waits for its delivery."""
        topic = half.properties.get(Property.REAL_TOPIC)
        return topic is not None and any(
            copy.prepared_offset > 0
            for name in (topic, name_rules.SCHEDULE_TOPIC, name_rules.TIMER_TOPIC)
            for copy in self._copies(name, half)
        )

    def _copies(self, topic: str, record: Record) -> Iterator[Record]:
        """Messages of the topic with the record's unique key and body, as far as another broker put them."""
        key = record.properties.get(Property.UNIQUE_KEY)
        if key is None:
            return
        # also what is not confirmed yet: readers of the new master may see it late
        found, _, _ = self._store.reader.query(topic, key, COPIES_MAX, 0, EVER_MS, unconfirmed=True)
        for copy in (decode(data, False) for data in found):
            if copy.topic == topic and copy.body == record.body and self.covers(copy.physical_offset):
                yield copy


def _text(until: int | None) -> bytes:
    return json.dumps({"until": until}).encode()
