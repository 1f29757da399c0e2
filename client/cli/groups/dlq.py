"""Manage dead letters: list, show, redrive, export and drop them."""

import contextlib
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import orjson

from firearrow._native.base.shared_arguments import shared
from firearrow._native.base.verbs import Switch
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.names import DLQ, topic_table
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command, Verb, of_each, positive
from firearrow.client.cli.groups.dead_letters import DeadLetters, stored_progress
from firearrow.client.cli.groups.edits import Edits, edit_by
from firearrow.client.cli.groups.receipts import Receipts, receipts_path
from firearrow.client.cli.messages.message_view import body_text, decode_by, message_row, whole_row
from firearrow.client.cli.messages.selection import Selection, Unfound, select_by
from firearrow.client.cli.output import Column, Kind, titled

LIMIT = 100
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
    Column("state", "STATE"),
    Column("msgId", "MESSAGE ID"),
    *titled("keys", "body"),
)
RECEIPT_COLUMNS = (
    Column("atMs", "TIME", Kind.TIME),
    Column("state", "STATE"),
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("offset", "OFFSET", Kind.COUNT),
    Column("msgId", "MESSAGE ID"),
    Column("topic", "TO TOPIC"),
    Column("toBroker", "TO BROKER"),
    Column("toQueueId", "TO QUEUE", Kind.COUNT),
    Column("toOffset", "TO OFFSET", Kind.COUNT),
    Column("reason", "REASON"),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("dlq", __doc__)
    command.verb("list", list_groups)
    verb = command.verb("show", show)
    verb.argument("group", help=GROUP)
    select_by(verb, limit=f"maximum number (default {LIMIT})", limit_default=LIMIT)
    _receipts(verb)
    verb = command.verb("redrive", redrive)
    verb.argument("group", help=GROUP).moving()
    select_by(verb)
    verb.arguments(shared("--rate", type=positive))
    edit_by(verb)
    verb.arguments(shared("--to-topic", action="append", default=[]))
    verb.argument(
        "--retry-topic",
        action="store_true",
        help="send them to the retry topic, so that only this group gets them",
    )
    verb.argument("--again", action="store_true", help="also letters that were sent again or dropped before")
    verb.arguments(shared("--provenance", action=Switch, default=True))
    _receipts(verb)
    verb = command.verb("export", export)
    verb.argument("group", help=GROUP)
    verb.argument("file", nargs="?", help="new file to write (default: the output)")
    select_by(verb).arguments(shared("--rate", type=positive))
    decode_by(verb)
    verb = command.verb("drop", drop)
    verb.argument("group", help=GROUP).moving()
    select_by(verb).arguments(shared("--rate", type=positive))
    verb.argument("--before", dest="to", metavar="TIME", help="same as --to")
    verb.argument("--redriven", action="store_true", help="only dead letters that were sent again")
    verb.argument("--mark", action="store_true", help="delete nothing: only let redrive pass over them")
    _receipts(verb)
    verb = command.verb("receipts", show_receipts)
    verb.argument("group", help=GROUP)
    _receipts(verb)
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


GROUP = "consumer group"


def _receipts(verb: Verb) -> None:
    verb.argument(
        "--receipts",
        metavar="FILE",
        help="file of what became of each letter (default: one of this group in ~/.local/state/firearrow)",
    )


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
        done = {queue: await stored_progress(admin, queue) or 0 for queue in stats}
    except ClientError as error:
        call.output.note(f"{topic}: {error}")
        return None
    messages = sum(found.max_offset - found.min_offset for found in stats.values())
    left = sum(
        max(found.max_offset - max(done[queue], found.min_offset), 0) for queue, found in stats.items()
    )
    last_ms = max((found.last_ms for found in stats.values()), default=0)
    row = {"group": topic.removeprefix(DLQ), "messages": messages, "left": left, "lastMs": last_ms}
    return row if messages else None


async def show(call: Call) -> int:
    """Show the dead letters of a group. Select them by time, key, tag or id, or by what their bodies contain.

    firearrow dlq show billing --from -1h
    firearrow dlq show billing --grep 'timeout' --limit 10
    """
    given, selection, rows = call.arguments, Selection.of(call.arguments), []
    unfound = Unfound(selection.wanted)
    letters = await DeadLetters.of(call)
    receipts = Receipts.read(receipts_path(given.receipts, given.group, call.options))
    async with contextlib.aclosing(_chosen(letters, selection)) as chosen:
        async for letter in chosen:
            unfound.saw(letter)
            rows.append(_letter_row(call, letters, receipts, letter))
    if len(rows) == selection.limit:
        call.output.note(f"the first {selection.limit} are shown: --limit shows more")
    call.output.rows(LETTER_COLUMNS, rows)
    return _found(call, unfound)


def _found(call: Call, unfound: Unfound) -> int:
    """The exit code: 1 if an id was not found, which is noted."""
    if text := unfound.text():
        call.output.note(text)
        return FOUND_TROUBLE
    return OK


async def _chosen(letters: DeadLetters, selection: Selection) -> AsyncGenerator[ReceivedMessage, None]:
    """The letters of a selection."""
    left = selection.limit
    async with contextlib.aclosing(letters.read(await letters.spans(selection), selection.start)) as found:
        async for letter in found:
            if selection.wanted(letter):
                yield letter
                if left is not None:
                    left -= 1
                    if not left:
                        return


def _letter_row(
    call: Call, letters: DeadLetters, receipts: Receipts, letter: ReceivedMessage
) -> dict[str, Any]:
    row, receipt = message_row(letter), receipts.of(letter)
    row["originTopic"] = letters.origin(letter)
    row["originMsgId"] = letter.get_property("ORIGIN_MESSAGE_ID")
    row["state"] = receipt and receipt.fate
    if not call.output.json:
        text = body_text(letter)
        row["body"] = text if len(text) <= BODY_CHARS else text[: BODY_CHARS - 1] + "…"
    return row


async def export(call: Call) -> int:
    """Write the dead letters of a group as JSON Lines to a file or to the output. The broker keeps them.

    firearrow dlq export billing dead.jsonl
    firearrow dlq export billing --from -1d --key 4711 --decode base64
    """
    from firearrow.client.cli.messages.send import Pace  # noqa: PLC0415 (a producer)

    given, written = call.arguments, 0
    selection, letters, pace = Selection.of(given), await DeadLetters.of(call), Pace(given.rate)
    unfound = Unfound(selection.wanted)
    with _new_file(given.file) as file:
        async with contextlib.aclosing(_chosen(letters, selection)) as chosen:
            async for letter in chosen:
                await pace.wait()
                unfound.saw(letter)
                facts = {"group": given.group, "originTopic": letters.origin(letter)}
                row = whole_row(letter, given.decode) | facts
                file.write(orjson.dumps(row, default=str).decode() + "\n")
                written += 1
    call.output.note(f"{written} dead letters were written")
    return _found(call, unfound)


@contextlib.contextmanager
def _new_file(name: str | None) -> Iterator[TextIO]:
    if name is None:
        yield sys.stdout
        return
    path, part = Path(name), Path(f"{name}.part")
    if path.exists():
        raise ConfigError(f"cannot write {name}: it exists")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.rename(path)  # so that a file is never there without its end
    except OSError as error:
        raise ConfigError(f"cannot write {name}: {error.strerror}") from None


async def drop(call: Call) -> int:
    """Delete dead letters of a group: all of them, those sent again, the older ones, or chosen ones. Chosen ones that
    have others before them are marked, and redrive passes over them.

        firearrow dlq drop billing --redriven
        firearrow dlq drop billing --grep 'out of stock' --yes
    """
    from firearrow.client.cli.groups.drop import drop_letters  # noqa: PLC0415 (only for this verb)

    return await drop_letters(call)


async def redrive(call: Call) -> int:
    """Send dead letters of a group to their topics again, all of them or chosen ones. Each has a receipt, so that the
    next redrive continues where this one ends, and sends none twice.

        firearrow dlq redrive billing --dry-run
        firearrow dlq redrive billing --ids 7F0000010001 --filter 'jq .price=1' --yes
    """
    from firearrow.client.cli.groups.redrive import PLAN_COLUMNS, Redrive  # noqa: PLC0415 (a producer)

    given, edits = call.arguments, Edits.of(call.arguments)
    edits = replace(edits, editor=None) if given.dry_run else edits
    if given.retry_topic and given.to_topic:
        raise ConfigError("give --retry-topic or --to-topic, not both")
    topic_table(given.to_topic)
    path = receipts_path(given.receipts, given.group, call.options)
    with Receipts.read(path) if given.dry_run else Receipts.open(path) as receipts:
        work = await Redrive.of(call, edits, receipts)
        by_topic = await work.plan()
        letters, missing = sum(by_topic.values()), work.unfound.text()
        if missing:
            call.output.note(missing)
        if not letters:
            call.output.note(f"group {given.group} has no such dead letters that were not redriven")
            return FOUND_TROUBLE if missing else OK
        if given.body is not None and letters > 1:
            raise ConfigError(
                f"--body is for one letter, and {letters} are chosen: name one by --ids, or use --filter"
            )
        goal = f"the retry topic of {given.group}" if given.retry_topic else "their topics"
        if call.may(f"send {letters} dead letters of group {given.group} to {goal}"):
            return max(await work.run(), FOUND_TROUBLE if missing else OK)
        if given.dry_run:
            await work.check_edits()
            rows = ({"topic": topic, "messages": number} for topic, number in by_topic.items())
            call.output.rows(PLAN_COLUMNS, rows)
    return FOUND_TROUBLE if missing else OK


async def show_receipts(call: Call) -> int:
    """Show what became of the dead letters of a group that were sent again or dropped on this machine. The exit code is
    1 if one failed, or may be sent twice.

        firearrow dlq receipts billing
        firearrow dlq receipts billing --receipts redriven.jsonl
    """
    given = call.arguments
    rows = [
        {"group": given.group, **receipt.row()}
        for receipt in Receipts.read(receipts_path(given.receipts, given.group, call.options))
    ]
    call.output.rows(RECEIPT_COLUMNS, rows)
    return FOUND_TROUBLE if any(row["state"] in ("failed", "sending") for row in rows) else OK
