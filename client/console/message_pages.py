"""Pages of messages: searches whose results appear as they are found, one message, what comes live, dead letters.

A page with results is made around a marker and sent in parts: what is before it, the rows as they are found, the rest.
So it works without JavaScript. Loop thread.
"""

import contextlib
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.responses import RedirectResponse, Response, StreamingResponse

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    RocketMQError,
    TransportError,
)
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.times import time_ms, time_text
from firearrow.client.cli.command import Call
from firearrow.client.cli.groups.dlq import RECEIPT_COLUMNS
from firearrow.client.cli.messages.body_formats import BodyFormat, body_format
from firearrow.client.cli.messages.message import PATH_COLUMNS, found_message
from firearrow.client.cli.messages.message_view import (
    Decode,
    Decoding,
    Wanted,
    body_text,
    message_row,
    pattern,
    tags_of,
)
from firearrow.client.cli.messages.queue_reader import READER_GROUP, From, Span, Start, TopicReader, last_of
from firearrow.client.cli.messages.resending import message_again
from firearrow.client.console.app import Handler, View
from firearrow.client.console.pages import Shown
from firearrow.client.console.questions import Kept, Question, parsed
from firearrow.client.console.rendering import address, path
from firearrow.client.console.sessions import is_refusal

LIMIT, LIMIT_MAX = 50, 1000
LOOKED_AT = 10_000
"""How many of the newest messages a search without a place looks at."""
SCANNED_MAX, SCAN_S = 1_000_000, 60.0
LIVE_MAX, LIVE_MESSAGES_MAX = 40, 2000
BODY_SHOWN_BYTES = 64 << 10
ADDRESS_CHARS_MAX = 8192
PREVIEW_CHARS = 160
MESSAGE_PACK, SCHEMA = "msgpack", "schema"
NEEDED = f"this needs the right Sub on the topic and on the group {READER_GROUP}"
MASKED = "this console shows none"

Made = Callable[[ReceivedMessage], str]
"""Makes the row of a message."""


@dataclass(frozen=True, slots=True)
class Search:
    """What the fields of the form mean."""

    start: Start
    wanted: Wanted
    limit: int
    queue: int | None
    own: tuple[str, str] | None
    """Name and value of a property."""
    until_ms: int
    tags: str | None
    sql: str | None
    json: tuple[list[str], str] | None
    """A path in a JSON body, and the value there."""

    @classmethod
    def of(cls, view: View) -> "Search":
        """ConfigError: a field cannot be read."""
        limit = _number(view.get("limit"), "limit", 1, LIMIT_MAX) or LIMIT
        text, tags, sql = view.get("text"), view.get("tag") or None, view.get("sql") or None
        if tags and sql:
            raise ConfigError("give a tag or an SQL92 expression, not both: brokers filter by one of them")
        name, equals, value = view.get("property").partition("=")
        if view.get("property") and not (name and equals):
            raise ConfigError("property: write NAME=VALUE")
        json_path, json_equals, json_value = view.get("json").partition("=")
        if view.get("json") and not (json_path and json_equals):
            raise ConfigError("JSON path: write PATH=VALUE, such as order.items.0.price=5")
        is_filtered = bool(text or sql or tags or name or json_path)
        start = Start.parse(view.get("from") or f"-{LOOKED_AT if is_filtered else limit}")
        until_ms = time_ms(view.get("to")) if view.get("to") else 0
        key = view.get("key")
        wanted = Wanted(
            keys=frozenset([key]) if key else frozenset(),
            grep=pattern(re.escape(text)) if text else None,
            since_ms=start.value if start.kind is From.TIME else 0,
            until_ms=until_ms,
            tags=tags_of(tags),
        )
        queue = _number(view.get("queue"), "queue", 0, 1 << 16)
        own = (name, value) if name else None
        json = (json_path.strip().split("."), json_value.strip()) if json_path else None
        return cls(start, wanted, limit, queue, own, until_ms, tags, sql, json)

    def __call__(self, message: ReceivedMessage) -> bool:
        if self.own is not None and message.get_property(self.own[0]) != self.own[1]:
            return False
        return self.wanted(message) and (self.json is None or _has_at(message, *self.json))

    @property
    def reads_bodies(self) -> bool:
        return self.wanted.grep is not None or self.json is not None

    @property
    def is_newest(self) -> bool:
        return self.start.kind is From.LAST

    @property
    def is_filtered(self) -> bool:
        wanted = self.wanted
        return bool(wanted.grep or self.tags or self.sql or self.own or wanted.keys or self.json)


def _has_at(message: ReceivedMessage, names: list[str], wanted: str) -> bool:
    """Whether the body is JSON that has this value there: a text as it is, others as JSON writes them."""
    try:
        value = orjson.loads(message.body)
        for name in names:
            value = value[int(name)] if isinstance(value, list) else value[name]
        return wanted == (value if isinstance(value, str) else orjson.dumps(value).decode())
    except (ValueError, LookupError, TypeError, RocketMQError):  # TypeError: also of what is nested too deep
        return False


def _number(text: str, name: str, least: int, most: int) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise ConfigError(f"{name}: write a number from {least} to {most:,}")
    return int(text)


# ---- what is found ----


async def messages(view: View) -> Response:
    """A search in one topic."""
    topic = view.part("topic")
    if view.get("id"):
        return RedirectResponse(path("topics", topic, "messages", view.get("id")), 303)
    search = Search.of(view)
    hidden = await why_hidden(view, topic)
    if search.reads_bodies and hidden:
        raise ConfigError(f"text, JSON path: bodies are hidden, and not searched: {hidden}")
    notes: list[str] = []
    found = await _found(view, topic, search, notes, _made(view, hidden))
    rows = partial(_rows, view, found, notes=notes)
    return _streamed(view, "messages.html", rows, topic=topic)


async def _found(
    view: View, topic: str, search: Search, notes: list[str], made: Made
) -> AsyncGenerator[str, None]:
    """Rows of those of the search, found while they are read. RocketMQError: the topic cannot be read at all."""
    admin = view.access.admin
    if search.wanted.keys:
        key = next(iter(search.wanted.keys))
        named = await admin.messages_by_key(topic, key, search.limit, search.wanted.since_ms)
        return _listed(map(made, [each for each in named if search(each)][: search.limit]))
    reader = TopicReader(admin, topic, tags=search.tags, sql=search.sql, failed=notes.append)
    spans = await reader.spans(search.start)
    if search.queue is not None:
        spans = {queue: span for queue, span in spans.items() if queue.queue_id == search.queue}
    if search.until_ms:
        spans = await reader.until(spans, search.until_ms)
    if search.is_newest:
        return _newest(reader, spans, search, notes, made)
    return _each(_scanned(reader, spans, search, notes), made)


async def _listed(rows: Iterable[str]) -> AsyncGenerator[str, None]:
    for row in rows:
        yield row


async def _each(found: AsyncGenerator[ReceivedMessage, None], made: Made) -> AsyncGenerator[str, None]:
    async with contextlib.aclosing(found) as messages:
        async for message in messages:
            yield made(message)


async def _newest(
    reader: TopicReader, spans: Mapping[MessageQueue, Span], search: Search, notes: list[str], made: Made
) -> AsyncGenerator[str, None]:
    """The newest first; all that may be meant are read before. Of those before the last only rows are kept: bodies may
    be large."""
    if search.is_filtered:
        looked = max(LOOKED_AT, search.start.value)
        notes.append(
            f"looked at the newest {looked:,} messages of each queue; a place in “From” looks further"
        )
    async with contextlib.aclosing(
        _each(_scanned(reader, spans, search, notes, is_limited=False), made)
    ) as rows:
        last = await last_of(rows, search.limit)
    for row in reversed(list(last)):
        yield row


async def _scanned(
    reader: TopicReader,
    spans: Mapping[MessageQueue, Span],
    search: Search,
    notes: list[str],
    *,
    is_limited: bool = True,
) -> AsyncGenerator[ReceivedMessage, None]:
    found = scanned = 0
    end_s = time.monotonic() + SCAN_S
    async with contextlib.aclosing(reader.stored(spans)) as stored:
        async for message in stored:
            scanned += 1
            if search(message):
                yield message
                found += 1
                if is_limited and found == search.limit:
                    notes.append(f"the first {found} are shown; raise “At most” to see more")
                    return
            if scanned == SCANNED_MAX or time.monotonic() > end_s:
                last = time_text(message.store_timestamp)
                notes.append(f"stopped after {scanned:,} messages, at {last}: continue from there")
                return


async def _rows(
    view: View, found: AsyncGenerator[str, None], *, notes: list[str], most: int | None = None
) -> AsyncIterator[str]:
    """The rows of the table, then notes."""
    count = 0
    try:
        async with contextlib.aclosing(found) as rows:
            async for row in rows:
                yield row
                count += 1
                if count == most:
                    notes.append(f"{most:,} messages were shown: load the page again to continue")
                    break
    except RocketMQError as error:
        notes.append(str(error))
    yield view.console.templates.get_template("message_end.html").render(count=count, notes=notes)


def _made(view: View, hidden: str) -> Made:
    """Makes the rows of the table. `hidden`: why bodies are."""
    template = view.console.templates.get_template("message_row.html")

    def made(message: ReceivedMessage) -> str:
        decode = view.console.formats.get(message.topic, Decode.AUTO)
        return str(template.render(shown_row(message, hidden, decode)))

    return made


def shown_row(message: ReceivedMessage, hidden: str, decode: Decoding) -> dict[str, Any]:
    """The members of a row of the table."""
    row = message_row(message)
    text = f"(hidden: {hidden})" if hidden else body_text(message, decode)
    row["href"] = path("topics", message.topic, "messages", message.message_id)
    row["preview"] = text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"
    return row


def _streamed(
    view: View, template: str, rows: Callable[[], AsyncIterator[str]], **values: object
) -> Response:
    """The template has `marker` where the rows go."""
    if view.request.method == "HEAD":  # the connection's next request would wait for the last row
        return Response(media_type="text/html")
    marker = secrets.token_hex(16)
    before, _, after = view.html(template, marker=marker, **values).partition(marker)

    async def parts() -> AsyncIterator[str]:
        yield before
        async for row in rows():
            yield row
        yield after

    # what is compressed would wait until there is enough of it
    return StreamingResponse(parts(), media_type="text/html", headers={"Content-Encoding": "identity"})


async def live(view: View) -> Response:
    """Messages as they come, for as long as the page is open."""
    topic, console = view.part("topic"), view.console
    if console.running > LIVE_MAX:
        raise ConfigError(f"{LIVE_MAX} requests are answered now: close a live page, and try again")
    hidden = await why_hidden(view, topic)
    notes: list[str] = []
    reader = TopicReader(view.access.admin, topic, tags=view.get("tag") or None, failed=notes.append)
    spans = await reader.spans(Start(From.END))
    found = _each(reader.coming(spans), _made(view, hidden))
    rows = partial(_rows, view, found, notes=notes, most=LIVE_MESSAGES_MAX)
    return _streamed(view, "live.html", rows, topic=topic)


async def why_hidden(view: View, topic: str) -> str:
    """Why the visitor sees no bodies of the topic; "": it may consume it. The index also answers those who may only
    look at it."""
    if view.console.mask_bodies:
        return MASKED
    if not view.access.user:
        return ""
    admin = view.access.admin
    try:
        queue = (await admin.queues(topic))[0]
        end = await admin.max_offset(queue)
        async for _ in TopicReader(admin, topic).stored({queue: Span(end, end + 1)}):
            break
    except BrokerError as error:
        if is_refusal(error):
            return NEEDED
        raise
    except ClientError as error:
        return str(error)
    return ""


# ---- one message ----


async def message(view: View) -> Response:
    topic, name = view.part("topic"), view.part("id")
    formats = _formats(view, topic)
    decode = view.get("decode", SCHEMA if SCHEMA in formats else "")
    decode = decode if decode in (*Decode, *formats) else ""
    kept = await view.ask("message", "path", topic, name)
    found = await _message(view, topic, name)
    if found is None:
        return view.page("message.html", topic=topic, name=name, row=None, steps=kept, columns=PATH_COLUMNS)
    if found.topic != topic:  # an offset id names a place of a broker: what is there may be of any topic
        return RedirectResponse(path("topics", found.topic, "messages", name), 303)
    hidden = await why_hidden(view, topic)
    row = message_row(found)
    properties = row.pop("properties")
    row.pop("body")
    shown, encoding, size = (
        (f"(hidden: {hidden})", "", found.body_bytes) if hidden else _body(found, decode, formats.get(decode))
    )
    return view.page(
        "message.html",
        topic=topic,
        name=name,
        row=row,
        properties=properties,
        body=shown,
        encoding=encoding,
        size=size,
        is_cut=not hidden and size > BODY_SHOWN_BYTES,
        may_read=not hidden,
        decode=decode,
        edit="" if hidden else _edit_address(topic, found),
        decodes=[*(each.value for each in Decode), *formats],
        steps=kept,
        columns=PATH_COLUMNS,
    )


def _edit_address(topic: str, found: ReceivedMessage) -> str:
    """Of a form to send it again with changes; "": its body is too long for that, or is not text."""
    try:
        again = message_again(found, topic)
        body = bytes(again.body).decode()
    except (UnicodeDecodeError, RocketMQError):
        return ""
    own = [f"{name}={value}" for name, value in again.properties.items()]
    fields = {
        "topic": topic,
        "body": body,
        "--tag": again.tags or "",
        "--key": "\n".join(again.keys),
        "--property": "\n".join(own),
        "--shard": again.sharding_key or "",
    }
    made = address("/actions/send", **{f"f.{name}": value for name, value in fields.items()})
    return made if len(made) <= ADDRESS_CHARS_MAX else ""


async def _message(view: View, topic: str, name: str) -> ReceivedMessage | None:
    """None: it is not in its topic (yet)."""
    given = parsed(Question("message", "get", {}, (topic, name)))
    call = Call(given, view.access.context, Kept(), view.access.admin)
    try:
        return await found_message(call)
    except BrokerError as error:
        if is_refusal(error):
            raise
        return None
    except ClientError:
        return None


def _formats(view: View, topic: str) -> dict[str, BodyFormat]:
    """By the names that visitors choose: never one that names a file."""
    found = {}
    with contextlib.suppress(ConfigError):  # its library is missing
        if (message_pack := body_format(MESSAGE_PACK)) is not None:
            found[MESSAGE_PACK] = message_pack
    if (schema := view.console.formats.get(topic)) is not None:
        found[SCHEMA] = schema
    return found


def _body(found: ReceivedMessage, decode: str, format_: BodyFormat | None) -> tuple[str, str, int]:
    """As text, its encoding, its bytes. Without a choice JSON is indented."""
    try:
        body = found.body
    except RocketMQError as unreadable:
        return str(unreadable), "unreadable", found.body_bytes
    if format_ is not None:
        try:
            text = _indented(format_.decoded(body))
        except ValueError as error:
            return _hex_dump(body[:BODY_SHOWN_BYTES]), f"hex, because {error}", len(body)
        return text[:BODY_SHOWN_BYTES], format_.name, len(body)
    cut = body[:BODY_SHOWN_BYTES]
    if not decode and len(body) <= BODY_SHOWN_BYTES and body[:1] in (b"{", b"["):
        with contextlib.suppress(ValueError, TypeError):  # TypeError: it is nested too deep
            return _indented(orjson.loads(body)), "JSON", len(body)
    if decode in ("", Decode.AUTO, Decode.TEXT, Decode.JSON):
        try:
            return cut.decode("utf-8", "strict" if decode != Decode.TEXT else "replace"), "text", len(body)
        except UnicodeDecodeError as error:
            if error.start > len(cut) - 4 and len(cut) < len(body):  # a character was cut
                return cut[: error.start].decode(), "text", len(body)
    if decode == Decode.BASE64:
        import base64  # noqa: PLC0415 (rare)

        return base64.b64encode(cut).decode(), "base64", len(body)
    return _hex_dump(cut), "hex", len(body)


def _indented(value: Any) -> str:  # noqa: ANN401 (JSON)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _hex_dump(body: bytes) -> str:
    """Sixteen bytes a line, with what of them is ASCII."""
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)


async def download(view: View) -> Response:
    """The body as it was sent."""
    topic, name = view.part("topic"), view.part("id")
    if hidden := await why_hidden(view, topic):
        raise ConfigError(f"the body is hidden: {hidden}")
    found = await _message(view, topic, name)
    if found is None or found.topic != topic:
        raise ClientError(f"topic {topic} has no message {name}")
    file = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80]
    headers = {"Content-Disposition": f'attachment; filename="{file}.bin"'}
    return Response(found.body, media_type="application/octet-stream", headers=headers)


# ---- dead letters ----


async def dead_letters_of(view: View) -> Response:
    """Those of a group, grouped by the topic that they came from, with what became of each."""
    name = view.part("group")
    if view.get("text") and view.console.mask_bodies:
        raise ConfigError("text: this console shows no bodies, and does not search in them")
    try:
        kept = await _letters(view, name)
        receipts = (await view.ask("dlq", "receipts", name)).table.rows
    except ClientError as error:
        if isinstance(error, BrokerError | TransportError):
            raise
        kept, receipts = Kept(), []
        kept.note(str(error))  # it has none
    hidden = ""
    by_topic: dict[str, int] = {}
    for row in kept.table.rows:
        origin = str(row["originTopic"] or "unknown")
        by_topic[origin] = by_topic.get(origin, 0) + 1
    if kept.table.rows:
        hidden = await why_hidden(view, str(kept.table.rows[0]["topic"]))
    return view.page(
        "dead_letters_of.html",
        group=name,
        shown=Shown(view, kept.table, "msgId"),
        hidden=f"(hidden: {hidden})" if hidden else "",
        by_topic=sorted(by_topic.items(), key=lambda pair: -pair[1]),
        notes=kept.notes,
        receipts=receipts[-LIMIT_MAX:],
        receipt_columns=RECEIPT_COLUMNS,
    )


async def _letters(view: View, name: str) -> Kept:
    text = view.get("text")
    return await view.ask(
        "dlq",
        "show",
        name,
        _from=view.get("from") or "start",
        to=view.get("to"),
        key=view.get("key"),
        tag=view.get("tag"),
        ids=view.get("ids"),
        grep=re.escape(text) if text else None,
        limit=_number(view.get("limit"), "limit", 1, LIMIT_MAX) or 200,
    )


PAGES: dict[str, Handler] = {
    "/topics/{topic}/bodies/{id:path}": download,
    "/dead-letters/{group}": dead_letters_of,
    "/topics/{topic}/live": live,
    "/topics/{topic}/messages": messages,
    "/topics/{topic}/messages/{id:path}": message,
}
