"""Messages as rows, lines and by a template, with their bodies decoded; and which messages are meant."""

import argparse
import base64
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError, RocketMQError
from firearrow.client.base.times import time_text
from firearrow.client.cli.command import Verb
from firearrow.client.cli.messages.body_formats import NAMES, BodyFormat, body_format
from firearrow.client.cli.output import Column, Kind, Output, printable, titled

COLUMNS = (
    Column("storedMs", "STORED", Kind.TIME),
    Column("queue", "QUEUE"),
    Column("offset", "OFFSET", Kind.COUNT),
    Column("msgId", "MESSAGE ID"),
    *titled("tags", "keys", "body"),
)
"""Of a table of messages."""
RECORD_COLUMNS = (
    Column("storedMs", "storedMs", Kind.TIME),
    Column("bornMs", "bornMs", Kind.TIME),
    Column("bodyBytes", "bodyBytes", Kind.BYTES),
)
OF_PULLS = frozenset({"MIN_OFFSET", "MAX_OFFSET"})
"""What a pull adds to the properties: a message has the same ones however it was read."""
TABLE_BODY_CHARS = 60
PATTERN_CHARS_MAX = 1000
FIELD = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\", r"\0": "\0"}


class Decode(StrEnum):
    """How a body is shown."""

    AUTO = "auto"
    """Text if it is UTF-8, otherwise base64 in JSON and hex on a terminal"""
    JSON = "json"
    """The JSON value, as part of a JSON line; as AUTO if it is none"""
    TEXT = "text"
    """UTF-8; other bytes as U+FFFD"""
    HEX = "hex"
    BASE64 = "base64"


Decoding = Decode | BodyFormat
"""What --decode names. A body that is not of the named format is shown as by AUTO."""


def decode_by(verb: Verb) -> Verb:
    """Add `--decode`."""
    known = ", ".join(each.value for each in Decode)
    return verb.argument(
        "--decode",
        type=_decoding,
        default=Decode.AUTO,
        metavar="FORMAT",
        help=f"format of bodies: {known}, {NAMES}",
    )


def _decoding(text: str) -> Decoding:
    try:
        found = Decode(text) if text in list(Decode) else body_format(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found is None:
        known = ", ".join(each.value for each in Decode)
        raise argparse.ArgumentTypeError(f"{text!r} is not a format: use {known}, {NAMES}")
    return found


def message_row(message: ReceivedMessage, decode: Decoding = Decode.AUTO) -> dict[str, Any]:
    """The members of a message in JSON. `bodyEncoding` says what a body is that is not its text."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "offset": message.queue_offset,
        "storedMs": message.store_timestamp,
        "bornMs": message.born_timestamp,
        "bornHost": message.born_host,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsumeTimes": message.reconsume_times,
        "properties": {name: value for name, value in message.properties.items() if name not in OF_PULLS},
    }
    try:
        body = message.body
    except RocketMQError as unreadable:
        return row | {"bodyBytes": message.body_bytes, "body": None, "bodyError": str(unreadable)}
    shown, encoding = _decoded(body, decode)
    row |= {"bodyBytes": len(body), "body": shown}
    return row | ({"bodyEncoding": encoding} if encoding else {})


def whole_row(message: ReceivedMessage, decode: Decoding = Decode.AUTO) -> dict[str, Any]:
    """All that a broker has of a message: `message_row`, and what only copies and forensics need. `bodyCrc` is that of
    the body as it was sent, `sysFlag` shows how it is stored."""
    row = message_row(message, decode) | {
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "storeHost": message.store_host,
        "physicalOffset": message.physical_offset,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    return row if row["body"] is None else row | {"bodyCrc": body_crc(message.body)}


def body_crc(body: bytes) -> int:
    """As records have it: without the highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _decoded(body: bytes, decode: Decoding) -> tuple[Any, str | None]:
    match decode:
        case BodyFormat():
            try:
                return decode.decoded(body), "json"
            except ValueError:
                return _decoded(body, Decode.AUTO)
        case Decode.HEX:
            return body.hex(), "hex"
        case Decode.BASE64:
            return base64.b64encode(body).decode(), "base64"
        case Decode.TEXT:
            return body.decode("utf-8", "replace"), None
        case Decode.JSON:
            try:
                return _json(body), "json"
            except ValueError:
                return _decoded(body, Decode.AUTO)
        case _:
            try:
                return body.decode(), None
            except UnicodeDecodeError:
                return base64.b64encode(body).decode(), "base64"


def _json(body: bytes) -> object:
    """ValueError: it is not JSON, or nested too deep to be written again as a member of a row."""
    value = orjson.loads(body)
    try:
        orjson.dumps([[value]])
    except TypeError:
        raise ValueError("it is nested too deep") from None
    return value


def body_text(message: ReceivedMessage, decode: Decoding = Decode.AUTO) -> str:
    """The body for people; ends of lines are kept."""
    try:
        shown, encoding = _decoded(message.body, decode)
    except RocketMQError as unreadable:
        return f"<{unreadable}>"
    if encoding == "json":
        return orjson.dumps(shown).decode()
    return message.body.hex(" ") if decode is not Decode.BASE64 and encoding == "base64" else str(shown)


def message_line(message: ReceivedMessage, decode: Decoding) -> str:
    """One line: time, place, tag, keys and body."""
    words = [
        time_text(message.store_timestamp),
        message.topic,
        f"{message.broker_name}/{message.queue_id}:{message.queue_offset}",
        f"[{message.tags}]" if message.tags else "",
        ",".join(message.keys),
        body_text(message, decode),
    ]
    return " ".join(filter(None, words))


def table_row(message: ReceivedMessage) -> dict[str, Any]:
    """A row of COLUMNS for a table: the start of the body."""
    text = body_text(message)
    shown = text if len(text) <= TABLE_BODY_CHARS else text[: TABLE_BODY_CHARS - 1] + "…"
    return message_row(message) | {"queue": f"{message.broker_name}/{message.queue_id}", "body": shown}


def print_messages(output: Output, messages: list[ReceivedMessage]) -> None:
    """A table on a terminal, whole messages in JSON."""
    output.rows(COLUMNS, map(message_row if output.json else table_row, messages))


def print_message(output: Output, message: ReceivedMessage, decode: Decoding) -> None:
    """One whole message."""
    row = message_row(message, decode)
    if not output.json:
        properties = row.pop("properties")
        row["body"] = body_text(message, decode)
        row |= {f"property {name}": value for name, value in sorted(properties.items())}
    output.record(row, RECORD_COLUMNS)


class Template:
    r"""`{topic} {queueId} {offset} {msgId} {body}\n`: fields of a message's JSON; `{property:NAME}`; `\n`, `\t`.

    ConfigError: an unknown field.
    """

    FIELDS = frozenset(
        [
            "topic",
            "broker",
            "queueId",
            "offset",
            "storedMs",
            "bornMs",
            "bornHost",
            "msgId",
            "offsetMsgId",
            "tags",
            "keys",
            "reconsumeTimes",
            "bodyBytes",
            "body",
            "property",
            "time",
        ]
    )

    def __init__(self, text: str) -> None:
        for name, argument in FIELD.findall(text):
            if name not in self.FIELDS or (name == "property") != bool(argument):
                known = " ".join(sorted(self.FIELDS - {"property"}))
                raise ConfigError(f"--format: {{{name}}} is no field; known: {known} property:NAME")
        self._text = re.sub(r"\\[nt0\\]", lambda found: ESCAPES[found[0]], text)

    def fill(self, message: ReceivedMessage, decode: Decoding, clean: Callable[[str], str] = str) -> str:
        """`clean` gets each value."""
        row = message_row(message, decode)

        def value(found: re.Match[str]) -> str:
            name, argument = found.groups()
            match name:
                case "body":
                    return body_text(message, decode)
                case "property":
                    return str(row["properties"].get(argument, ""))
                case "keys":
                    return " ".join(message.keys)
                case "time":
                    return time_text(message.store_timestamp)
                case _:
                    return "" if row[name] is None else str(row[name])

        return FIELD.sub(lambda found: clean(value(found)), self._text)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages are meant; None, 0 and empty sets: all. `ids`, in capitals: unique ids, offset ids, or the ids
    that dead letters had in their topics."""

    keys: frozenset[str] = frozenset()
    grep: re.Pattern[str] | None = None
    since_ms: int = 0
    until_ms: int = 0
    tags: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def __call__(self, message: ReceivedMessage) -> bool:
        if message.store_timestamp < self.since_ms or 0 < self.until_ms < message.store_timestamp:
            return False
        if self.keys and self.keys.isdisjoint(message.keys):
            return False
        if self.ids and self.ids.isdisjoint(each.upper() for each in ids_of(message)):
            return False
        if self.tags and message.tags not in self.tags:
            return False
        return self.grep is None or self.grep.search(body_text(message, Decode.TEXT)) is not None


def ids_of(message: ReceivedMessage) -> tuple[str, ...]:
    """All ids by which a message is known."""
    origin = message.get_property("ORIGIN_MESSAGE_ID")
    return (message.message_id, message.offset_message_id, *([origin] if origin else ()))


def tags_of(text: str | None) -> frozenset[str]:
    """The tags of `a || b`; none of them: all messages."""
    return frozenset(tag.strip() for tag in (text or "").split("||") if tag.strip()) - {"*"}


def pattern(text: str | None) -> re.Pattern[str] | None:
    """A regular expression as Python has them. ConfigError."""
    if text is None:
        return None
    if len(text) > PATTERN_CHARS_MAX:
        raise ConfigError(f"--grep: at most {PATTERN_CHARS_MAX} characters")
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"--grep: {text!r} is not a regular expression: {error}") from None


def printer(output: Output, decode: Decoding, template: str | None) -> Callable[[ReceivedMessage], None]:
    """What prints each message as it comes. ConfigError: the template has an unknown field."""
    if template is not None:
        filled = Template(template)
        clean = printable if output.terminal else str
        return lambda message: output.text(filled.fill(message, decode, clean))
    if output.json:
        return lambda message: output.json_line(message_row(message, decode))
    return lambda message: output.shown(message_line(message, decode))
