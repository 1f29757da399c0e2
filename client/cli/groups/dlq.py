"""Manage dead letters: list, show, redrive, export and drop them."""

import contextlib
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import orjson

from firearrow._native.protocol.name_rules import dlq_topic, retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.requests import integer_of
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NoRoute, RocketMQError, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import DLQ, check_group
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command, count, of_each
from firearrow.client.cli.formats import members
from firearrow.client.cli.messages.message_view import Decode, Wanted, body_text, message_row, pattern
from firearrow.client.cli.messages.queue_reader import READER_GROUP, From, Span, Start, TopicReader
from firearrow.client.cli.messages.resending import message_again, origin_topic, retry_again
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.cli.times import time_ms

LIMIT = 100
COMMIT_EACH = 32
"""Redriven messages after which the progress is stored: as many are sent again at most after a crash."""
BODY_CHARS = 60
GROUP_COLUMNS = (
    Column("group", "GROUP"),
    Column("messages", "DEAD LETTERS", Kind.COUNT),
    Column("left", "NOT REDRIVEN", Kind.COUNT),
    Column("lastMs", "LAST", Kind.TIME),
)
LETTER_COLUMNS = (
    Column("storedMs", "DEAD SINCE", Kind.TIME),
    Column("offset", "OFFSET", Kind.COUNT),
    Column("originTopic", "TOPIC"),
    Column("reconsumeTimes", "RETRIES", Kind.COUNT),
    Column("msgId", "MESSAGE ID"),
    *titled("keys", "body"),
)
QUEUE_COLUMNS = (
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("minOffset", "FIRST", Kind.COUNT),
    Column("maxOffset", "NEXT", Kind.COUNT),
    Column("trimmed", "DROPPED", Kind.COUNT),
)


def main(arguments: Sequence[str]) -> int:
    command = Command("dlq", __doc__)
    command.verb("list", list_groups)
    verb = command.verb("show", show)
    verb.argument("group")
    verb.argument(
        "--from",
        dest="start",
        default="start",
        metavar="PLACE",
        help="where to start: start, end, -10, -15m, a time or an offset",
    )
    verb.argument("--key", help="only messages with this key")
    verb.argument("--grep", metavar="REGEX", help="only bodies that match this regular expression")
    verb.argument("--limit", type=count, default=LIMIT, metavar="N", help=f"maximum number (default {LIMIT})")
    verb = command.verb("redrive", redrive)
    verb.argument("group").moving()
    verb.argument(
        "--retry-topic",
        action="store_true",
        help="send them to the retry topic, so that only this group gets them",
    )
    verb.argument("--limit", type=count, metavar="N", help="maximum number")
    verb.argument(
        "--again", action="store_true", help="start with the first dead letter, and repeat those sent before"
    )
    verb = command.verb("export", export)
    verb.argument("group")
    verb.argument("file", nargs="?", help="new file to write (default: the output)")
    verb.argument(
        "--from",
        dest="start",
        default="start",
        metavar="PLACE",
        help="where to start: start, end, -10, -15m, a time or an offset",
    )
    verb.argument("--decode", type=Decode, choices=list(Decode), default=Decode.AUTO, help="format of bodies")
    verb = command.verb("drop", drop)
    verb.argument("group").moving()
    verb.argument("--redriven", action="store_true", help="only dead letters that were sent again")
    verb.argument("--before", metavar="TIME", help="only dead letters from before this time")
    return command.run(arguments)


async def list_groups(call: Call) -> int:
    """List the groups that have dead letters. The exit code is 1 if some of them were not sent again.

    firearrow dlq list
    firearrow dlq list --json
    """
    admin = await call.admin()
    topics = [topic for topic in await admin.topics() if topic.startswith(DLQ)]
    rows = [row for row in await of_each(topics, lambda topic: _group_row(call, admin, topic)) if row]
    call.output.rows(GROUP_COLUMNS, rows)
    return FOUND_TROUBLE if any(row["left"] for row in rows) else OK


async def _group_row(call: Call, admin: Admin, topic: str) -> dict[str, Any] | None:
    """None: there are no dead letters, or nothing is known."""
    try:
        stats = await admin.topic_stats(topic)
        done = {queue: await _progress(admin, queue) or 0 for queue in stats}
    except ClientError as error:
        call.output.note(f"{topic}: {error}")
        return None
    messages = sum(found.max_offset - found.min_offset for found in stats.values())
    left = sum(found.max_offset - max(done[queue], found.min_offset) for queue, found in stats.items())
    last_ms = max((found.last_ms for found in stats.values()), default=0)
    row = {"group": topic.removeprefix(DLQ), "messages": messages, "left": left, "lastMs": last_ms}
    return row if messages else None


async def show(call: Call) -> None:
    """Show the dead letters of a group. Select them by time, by key, or by what their bodies contain.

    firearrow dlq show billing --from -1h
    firearrow dlq show billing --grep 'timeout' --limit 10
    """
    given = call.arguments
    wanted, rows = Wanted(key=given.key, grep=pattern(given.grep)), []
    async with contextlib.aclosing(_letters(call, Start.parse(given.start))) as letters:
        async for letter in letters:
            if wanted(letter):
                rows.append(_letter_row(call, letter))
            if len(rows) >= given.limit:
                call.output.note(f"the first {given.limit} are shown: --limit shows more")
                break
    call.output.rows(LETTER_COLUMNS, rows)


async def export(call: Call) -> None:
    """Write the dead letters of a group as JSON Lines to a file or to the output. The broker keeps them.

    firearrow dlq export billing dead.jsonl
    firearrow dlq export billing --from -1d --decode base64
    """
    given, written = call.arguments, 0
    with _new_file(given.file) as file:
        async with contextlib.aclosing(_letters(call, Start.parse(given.start))) as letters:
            async for letter in letters:
                origin = origin_topic(_wrapped_group(call), letter.properties)
                row = message_row(letter, given.decode) | {"group": given.group, "originTopic": origin}
                file.write(orjson.dumps(row, default=str).decode() + "\n")
                written += 1
    call.output.note(f"{written} dead letters were written")


@contextlib.contextmanager
def _new_file(name: str | None) -> Iterator[TextIO]:
    if name is None:
        yield sys.stdout
        return
    try:
        with Path(name).open("x", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"cannot write {name}: {error.strerror}") from None


async def drop(call: Call) -> None:
    """Delete dead letters of a group: all of them, those sent again, or the older ones. Only FireArrow brokers
    support this.

        firearrow dlq drop billing --redriven
        firearrow dlq drop billing --before -7d --yes
    """
    given = call.arguments
    if given.redriven and given.before is not None:
        raise ConfigError("give --redriven or --before, not both")
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415 (only for this verb)

    admin = await call.admin()
    topic = dlq_topic(check_group(given.group))
    extensions = Extensions(admin)
    which = "all dead letters"
    trims: list[dict[str, Any]] = [{"offset": -1}]
    if given.before is not None:
        which, trims = f"dead letters from before {given.before}", [{"before": time_ms(given.before)}]
    if given.redriven:
        which, trims = "redriven dead letters", []
    with _of_group(given.group):
        if given.redriven:
            trims = await _redriven(admin, topic)
        found = [
            queue for trim in trims for queue in await extensions.trim_topic(topic, **trim, dry_run=True)
        ]
    letters = sum(queue.trimmed for queue in found)
    if not letters:
        call.output.note(f"group {given.group} has no such dead letters")
        return
    if call.may(f"delete {which} of group {given.group}: {letters}"):
        found = [queue for trim in trims for queue in await extensions.trim_topic(topic, **trim)]
    call.output.rows(QUEUE_COLUMNS, map(members, found))


async def _redriven(admin: Admin, topic: str) -> list[dict[str, Any]]:
    """What trims each queue up to its progress."""
    done = {queue: await _progress(admin, queue) for queue in await admin.queues(topic)}
    return [
        {"broker": queue.broker_name, "queue_id": queue.queue_id, "offset": offset}
        for queue, offset in done.items()
        if offset
    ]


# ---- redrive ----


async def redrive(call: Call) -> int:
    """Send the dead letters of a group to their topics again. The next redrive continues where this one ends.

    firearrow dlq redrive billing --dry-run
    firearrow dlq redrive billing --retry-topic --limit 100 --yes
    """
    # the progress is the offset of TOOLS_CONSUMER in the dead letter topic, at the broker, so that any client can
    # continue; no group that consumes is changed
    given, admin = call.arguments, await call.admin()
    topic = dlq_topic(check_group(given.group))
    with _of_group(given.group):
        spans = await TopicReader(admin, topic).spans(Start(From.START))
    if not given.again:
        spans = {queue: await _after_progress(admin, queue, span) for queue, span in spans.items()}
    letters = sum(span.end - span.start for span in spans.values())
    letters = min(letters, given.limit or letters)
    goal = f"the retry topic of {given.group}" if given.retry_topic else "their topics"
    if not letters:
        call.output.note(f"group {given.group} has no dead letters that were not redriven")
        return OK
    if not call.may(f"send {letters} dead letters of group {given.group} to {goal}"):
        return await _would_redrive(call, topic, spans, letters) if given.dry_run else OK
    return await _redrive(call, topic, spans, letters)


async def _redrive(call: Call, topic: str, spans: dict[MessageQueue, Span], letters_max: int) -> int:
    from firearrow.client.cli.messages.send import GROUP  # noqa: PLC0415 (a producer)
    from firearrow.client.send.producer import Producer  # noqa: PLC0415

    admin, sent, skipped = await call.admin(), 0, 0
    done: dict[MessageQueue, int] = {}
    trouble: RocketMQError | None = None
    producer = await call.enter(Producer(GROUP, client=call.options))
    async with contextlib.aclosing(TopicReader(admin, topic).stored(spans)) as letters:
        async for letter in letters:
            try:
                message = _to_send(call, letter)
                if message is not None:
                    (await producer.send(message)).raise_for_status()
            except RocketMQError as error:
                trouble = error
                break
            sent, skipped = sent + (message is not None), skipped + (message is None)
            done[MessageQueue(topic, letter.broker_name, letter.queue_id)] = letter.queue_offset + 1
            if (sent + skipped) % COMMIT_EACH == 0:
                await _store_progress(admin, done)
            if sent + skipped == letters_max:
                break
    await _store_progress(admin, done)
    call.output.record({"group": call.arguments.group, "sent": sent, "withoutTopic": skipped})
    if trouble is not None:
        call.output.note(f"stopped: {trouble}; the next redrive continues here")
    return FOUND_TROUBLE if trouble is not None or skipped else OK


def _to_send(call: Call, letter: ReceivedMessage) -> Any:  # noqa: ANN401 (a Message)
    """None: it is not known where it came from. BodyUnreadable."""
    given = call.arguments
    origin = origin_topic(_wrapped_group(call), letter.properties)
    if origin is None:
        call.output.note(f"{letter.message_id}: its topic is unknown, it stays where it is")
        return None
    if given.retry_topic:
        return retry_again(letter, origin, retry_topic(given.group))
    return message_again(letter, origin)


async def _would_redrive(call: Call, topic: str, spans: dict[MessageQueue, Span], letters_max: int) -> int:
    """What goes where, by topic."""
    by_topic: dict[str, int] = {}
    left = letters_max
    async with contextlib.aclosing(TopicReader(await call.admin(), topic).stored(spans)) as letters:
        async for letter in letters:
            origin = origin_topic(_wrapped_group(call), letter.properties) or "unknown"
            by_topic[origin] = by_topic.get(origin, 0) + 1
            left -= 1
            if not left:
                break
    columns = (Column("topic", "TOPIC"), Column("messages", "MESSAGES", Kind.COUNT))
    call.output.rows(columns, ({"topic": name, "messages": number} for name, number in by_topic.items()))
    return OK


async def _after_progress(admin: Admin, queue: MessageQueue, span: Span) -> Span:
    done = await _progress(admin, queue) or 0
    return Span(min(max(done, span.start), span.end), span.end)


async def _progress(admin: Admin, queue: MessageQueue) -> int | None:
    answer = await _ask_of_reader(
        admin, queue, RequestCode.QUERY_CONSUMER_OFFSET, {"setZeroIfNotFound": "false"}
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return integer_of(check(answer, queue.broker_name), "offset", queue.broker_name)


async def _store_progress(admin: Admin, done: dict[MessageQueue, int]) -> None:
    for queue, offset in done.items():
        commit = {"commitOffset": str(offset)}
        answer = await _ask_of_reader(admin, queue, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        check(answer, queue.broker_name)


async def _ask_of_reader(
    admin: Admin, queue: MessageQueue, code: RequestCode, ext: dict[str, str]
) -> RemotingCommand:
    """The answer with any code. READER_GROUP is the broker's own, so that no namespace is added to its name."""
    wrapped = replace(queue, topic=admin.namespace.wrap(queue.topic))
    named = {"consumerGroup": READER_GROUP, "topic": wrapped.topic, "queueId": str(queue.queue_id)}
    return await admin.calls.ask_master(wrapped, code, named | {"bname": queue.broker_name} | ext)


# ---- letters ----


@contextlib.contextmanager
def _of_group(group: str) -> Iterator[None]:
    """ClientError: the group has no dead-letter topic, and so no dead letters."""
    try:
        yield
    except NoRoute:
        raise ClientError(f"group {group} has no dead letters") from None


async def _letters(call: Call, start: Start) -> AsyncGenerator[ReceivedMessage, None]:
    """ClientError: the group has none, or its topic cannot be read."""
    group = call.arguments.group
    reader = TopicReader(await call.admin(), dlq_topic(check_group(group)))
    since_ms = start.value if start.kind is From.TIME else 0
    try:
        with _of_group(group):
            async with contextlib.aclosing(reader.stored(await reader.spans(start))) as letters:
                async for letter in letters:
                    if letter.store_timestamp >= since_ms:
                        yield letter
    except BrokerError as refused:
        raise ClientError(f"the dead letters of group {group} cannot be read: {refused}") from None


def _letter_row(call: Call, letter: ReceivedMessage) -> dict[str, Any]:
    row = message_row(letter)
    row["originTopic"] = origin_topic(_wrapped_group(call), letter.properties)
    row["originMsgId"] = letter.get_property("ORIGIN_MESSAGE_ID")
    if not call.output.json:
        text = body_text(letter)
        row["body"] = text if len(text) <= BODY_CHARS else text[: BODY_CHARS - 1] + "…"
    return row


def _wrapped_group(call: Call) -> str:
    """The group by its name at the brokers, which the names of retry topics contain."""
    space = call.options.namespace
    group: str = call.arguments.group
    return f"{space}%{group}" if space and not group.startswith(f"{space}%") else group
