"""Trace records: what producers and consumers record about messages, in the format of Apache's clients.

Fields end with byte 1, records with byte 2; None is written as `null`. Values only: any thread.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from firearrow.client.base.errors import RocketMQError

FIELD, RECORD = "\x01", "\x02"
NULL = "null"
TEXT_MAX = 128 << 20
FIELD_CHARS_MAX = 1 << 20


class InvalidTrace(RocketMQError, ValueError):
    """The text is not a valid trace; the message names the record and the field."""


class MessageKind(Enum):
    """The values are those in a record."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ReturnType(Enum):
    """How a handler ended. The values are those in a record."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class PubRecord:
    """`Pub`: a message was sent. `time_ms` is its start, `body_bytes` its size after compression."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_bytes: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str | None
    success: bool

    def encode(self) -> str:
        return _line(
            "Pub",
            self.time_ms,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tags,
            self.keys,
            self.store_host,
            self.body_bytes,
            self.cost_ms,
            self.kind,
            self.offset_message_id,
            self.success,
        )


@dataclass(frozen=True, slots=True)
class SubBeforeRecord:
    """`SubBefore`: a handler is about to be called with a message. Each call has one request id."""

    time_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str | None

    def encode(self) -> str:
        return _line(
            "SubBefore",
            self.time_ms,
            self.region,
            self.group,
            self.request_id,
            self.message_id,
            self.retries,
            self.keys,
        )


@dataclass(frozen=True, slots=True)
class SubAfterRecord:
    """`SubAfter`: the handler returned. `time_ms` is 0 and `group` is None if the writer left them out."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    returned: ReturnType
    time_ms: int
    group: str | None

    def encode(self) -> str:
        return _line(
            "SubAfter",
            self.request_id,
            self.message_id,
            self.cost_ms,
            self.success,
            self.keys,
            self.returned,
            self.time_ms,
            self.group,
        )


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """`EndTransaction`: the decision (`state`, Java's name) and whether a broker's check led to it."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    kind: MessageKind
    transaction_id: str | None
    state: str
    from_check: bool

    def encode(self) -> str:
        return _line(
            "EndTransaction",
            self.time_ms,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tags,
            self.keys,
            self.store_host,
            self.kind,
            self.transaction_id,
            self.state,
            self.from_check,
        )


@dataclass(frozen=True, slots=True)
class RecallRecord:
    """`Recall`: a timer message was recalled."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool

    def encode(self) -> str:
        return _line(
            "Recall", self.time_ms, self.region, self.group, self.topic, self.message_id, self.success
        )


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord


def searchable(record: TraceRecord) -> Iterator[str]:
    """The keys under which the record can be found: message ids (a batch has several) and message keys."""
    yield from record.message_id.split(",")
    if not isinstance(record, RecallRecord) and record.keys:
        yield from record.keys.split()


def decode(text: str) -> list[TraceRecord]:
    """The records of one trace message; unknown kinds are skipped. InvalidTrace."""
    if len(text) > TEXT_MAX:
        raise InvalidTrace(f"the trace has {len(text)} characters, at most {TEXT_MAX} are allowed")
    return list(_decoded(text.split(RECORD)))


def _decoded(lines: Iterable[str]) -> Iterator[TraceRecord]:
    for line in lines:
        kind, *fields = line.split(FIELD)
        read = _READERS.get(kind)
        if read is not None:
            yield read(_Fields(kind, fields))


class _Fields:
    """Reads the fields of one record in order."""

    def __init__(self, kind: str, fields: list[str]) -> None:
        self._kind = kind
        self._fields = fields
        self._at = 0

    def __len__(self) -> int:
        return len(self._fields)

    def optional_text(self, name: str) -> str | None:
        if self._at >= len(self._fields):
            raise InvalidTrace(f"{self._kind}: {name} is missing")
        text = self._fields[self._at]
        self._at += 1
        if len(text) > FIELD_CHARS_MAX:
            raise InvalidTrace(
                f"{self._kind}: {name} has {len(text)} characters, at most {FIELD_CHARS_MAX} are allowed"
            )
        return None if text == NULL else text

    def text(self, name: str) -> str:
        return self.optional_text(name) or ""

    def number(self, name: str) -> int:
        text = self.text(name)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise InvalidTrace(f"{self._kind}: {name}: {text[:40]!r} is not a number")
        return int(text)

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def kind(self) -> MessageKind:
        number = self.number("kind")
        if number not in _KINDS:
            raise InvalidTrace(f"{self._kind}: kind: {number} is unknown")
        return MessageKind(number)

    def returned(self) -> ReturnType:
        number = self.number("returned")
        if number not in _RETURNS:
            raise InvalidTrace(f"{self._kind}: returned: {number} is unknown")
        return ReturnType(number)


_KINDS = {kind.value for kind in MessageKind}
_RETURNS = {kind.value for kind in ReturnType}


def _read_pub(fields: _Fields) -> PubRecord:
    """The oldest version ends with the kind; later ones added the success, then the offset id before it."""
    number = len(fields)
    return PubRecord(
        fields.number("time_ms"),
        fields.text("region"),
        fields.text("group"),
        fields.text("topic"),
        fields.text("message_id"),
        fields.optional_text("tags"),
        fields.optional_text("keys"),
        fields.optional_text("store_host"),
        fields.number("body_bytes"),
        fields.number("cost_ms"),
        fields.kind(),
        fields.optional_text("offset_message_id") if number >= 13 else None,
        fields.flag("success") if number >= 12 else True,
    )


def _read_sub_before(fields: _Fields) -> SubBeforeRecord:
    return SubBeforeRecord(
        fields.number("time_ms"),
        fields.text("region"),
        fields.text("group"),
        fields.text("request_id"),
        fields.text("message_id"),
        fields.number("retries"),
        fields.optional_text("keys"),
    )


def _read_sub_after(fields: _Fields) -> SubAfterRecord:
    number = len(fields)
    return SubAfterRecord(
        fields.text("request_id"),
        fields.text("message_id"),
        fields.number("cost_ms"),
        fields.flag("success"),
        fields.optional_text("keys"),
        fields.returned() if number >= 6 else ReturnType.SUCCESS,
        fields.number("time_ms") if number >= 8 else 0,
        fields.optional_text("group") if number >= 8 else None,
    )


def _read_end_transaction(fields: _Fields) -> EndTransactionRecord:
    return EndTransactionRecord(
        fields.number("time_ms"),
        fields.text("region"),
        fields.text("group"),
        fields.text("topic"),
        fields.text("message_id"),
        fields.optional_text("tags"),
        fields.optional_text("keys"),
        fields.optional_text("store_host"),
        fields.kind(),
        fields.optional_text("transaction_id"),
        fields.text("state"),
        fields.flag("from_check"),
    )


def _read_recall(fields: _Fields) -> RecallRecord:
    return RecallRecord(
        fields.number("time_ms"),
        fields.text("region"),
        fields.text("group"),
        fields.text("topic"),
        fields.text("message_id"),
        fields.flag("success"),
    )


_READERS: dict[str, Callable[[_Fields], TraceRecord]] = {
    "Pub": _read_pub,
    "SubBefore": _read_sub_before,
    "SubAfter": _read_sub_after,
    "EndTransaction": _read_end_transaction,
    "Recall": _read_recall,
}


def _line(*fields: object) -> str:
    return FIELD.join(map(_text, fields)) + RECORD


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)
