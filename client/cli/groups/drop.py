"""Drop: dead letters that are not to be sent again.

A log loses messages at its start only. So the oldest letters are deleted, by FireArrow's brokers. Single letters are
marked in the receipts, and redrive passes over them; they are deleted once all letters before them are dropped as well.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import ConfigError, OnlyFireArrow
from firearrow.client.base.message import MessageQueue
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.formats import members
from firearrow.client.cli.groups.dead_letters import DeadLetters, Progress
from firearrow.client.cli.groups.receipts import Fate, Receipts, receipts_path
from firearrow.client.cli.messages.queue_reader import From, Span, Start
from firearrow.client.cli.messages.selection import Selection, Unfound
from firearrow.client.cli.messages.send import Pace
from firearrow.client.cli.output import Column, Kind

BLOCK = 1000
QUEUE_COLUMNS = (
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("minOffset", "FIRST", Kind.COUNT),
    Column("maxOffset", "NEXT", Kind.COUNT),
    Column("trimmed", "DROPPED", Kind.COUNT),
)


async def delete_oldest(call: Call, selection: Selection) -> int:
    """Delete all letters, those before a time, or those that were sent again."""
    given, letters = call.arguments, await DeadLetters.of(call)
    extensions = Extensions(await call.admin())
    whole = await letters.spans(Selection(Start(From.START), selection.wanted, None))
    which, trims = "all dead letters", [dict[str, Any](offset=-1)]
    if given.to is not None:
        which, trims = f"dead letters from before {given.to}", [{"before": selection.wanted.until_ms + 1}]
    if given.redriven:
        done = {queue: await letters.progress(queue) for queue in whole}
        which, trims = "redriven dead letters", _trims(done)
    found = [
        queue for trim in trims for queue in await extensions.trim_topic(letters.topic, **trim, dry_run=True)
    ]
    number = sum(queue.trimmed for queue in found)
    if not number:
        call.output.note(f"group {given.group} has no such dead letters")
        return OK
    if call.may(f"delete {which} of group {given.group}: {number}"):
        found = [queue for trim in trims for queue in await extensions.trim_topic(letters.topic, **trim)]
    call.output.rows(QUEUE_COLUMNS, map(members, found))
    return OK


def _trims(offsets: Mapping[MessageQueue, int | None]) -> list[dict[str, Any]]:
    """What trims each queue up to its offset."""
    return [
        {"broker": queue.broker_name, "queue_id": queue.queue_id, "offset": offset}
        for queue, offset in offsets.items()
        if offset
    ]


async def drop_chosen(call: Call, selection: Selection) -> int:
    """Mark the chosen letters, and delete those before which there is no other one."""
    given, letters = call.arguments, await DeadLetters.of(call)
    path = receipts_path(given.receipts, given.group, call.options)
    with Receipts.read(path) if given.dry_run else Receipts.open(path) as receipts:
        whole = await letters.spans(Selection(Start(From.START), selection.wanted, None))
        spans = await letters.spans(selection)
        unfound = Unfound(selection.wanted)
        chosen = await _chosen(letters, spans, selection, receipts, unfound)
        missing = unfound.text()
        code = FOUND_TROUBLE if missing else OK
        if missing:
            call.output.note(missing)
        if not chosen:
            call.output.note(f"group {given.group} has no such dead letters")
            return code
        if not call.may(f"drop {len(chosen)} dead letters of group {given.group}"):
            return code
        pace = Pace(given.rate)
        for letter in chosen:
            await pace.wait()
            receipts.note([letter], Fate.DROPPED)
        stored = {queue: await letters.progress(queue) for queue in whole}
        progress = Progress(stored, {queue: span.start for queue, span in whole.items()})
        dropped = Progress({}, {}) if given.mark else Progress(dict.fromkeys(whole), _starts(whole))
        await _advance(letters, whole, receipts, progress, dropped)
        await letters.store_progress(progress.moved())
        deleted = await _delete(call, letters, dropped.moved())
        row = {"group": given.group, "dropped": len(chosen), "deleted": deleted, "receipts": str(path)}
    call.output.record(row)
    return code


def _starts(spans: Mapping[MessageQueue, Span]) -> dict[MessageQueue, int]:
    return {queue: span.start for queue, span in spans.items()}


async def _chosen(
    letters: DeadLetters,
    spans: Mapping[MessageQueue, Span],
    selection: Selection,
    receipts: Receipts,
    unfound: Unfound,
) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with contextlib.aclosing(letters.read(spans, selection.start)) as reading:
        async for letter in reading:
            receipt = receipts.of(letter)
            if not selection.wanted(letter):
                continue
            unfound.saw(letter)
            if receipt is None or receipt.fate is not Fate.DROPPED:
                found.append(letter)
            if len(found) == selection.limit:
                break
    return found


async def _advance(
    letters: DeadLetters,
    whole: Mapping[MessageQueue, Span],
    receipts: Receipts,
    progress: Progress,
    dropped: Progress,
) -> None:
    """Move both over the letters at the start of each queue: `progress` over those that are done, `dropped` over those
    that were dropped."""
    async with contextlib.aclosing(letters.read(whole, Start(From.START))) as reading:
        async for letter in reading:
            queue, offset = letters.queue_of(letter), letter.queue_offset
            receipt = receipts.of(letter)
            if receipts.is_done(letter) or progress.is_before(queue, offset):
                progress.done(queue, offset)
            if receipt is not None and receipt.fate is Fate.DROPPED:
                dropped.done(queue, offset)


async def _delete(call: Call, letters: DeadLetters, offsets: Mapping[MessageQueue, int]) -> int:
    """How many were deleted; a broker of Apache's cannot."""
    extensions, deleted = Extensions(await call.admin()), 0
    for trim in _trims(offsets):
        try:
            deleted += sum(queue.trimmed for queue in await extensions.trim_topic(letters.topic, **trim))
        except OnlyFireArrow:
            call.output.note(
                f"{trim['broker']} is a broker of Apache's and keeps them until they expire; redrive passes over them"
            )
    return deleted


async def drop_letters(call: Call) -> int:
    """What `firearrow dlq drop` does; the exit code. ConfigError: the arguments contradict each other."""
    given, selection = call.arguments, Selection.of(call.arguments)
    by_choice = selection.is_by_choice or given.mark
    if given.redriven and (by_choice or given.to is not None):
        raise ConfigError("give --redriven, or --before and other choices, not both")
    return await (drop_chosen if by_choice else delete_oldest)(call, selection)
