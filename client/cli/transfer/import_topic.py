"""Import: messages of a file sent to a topic. The same command continues an interrupted import."""

import contextlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from firearrow._native.base.progress_bar import Advance, messages, progress_bar
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.transfer import message_file
from firearrow.client.cli.transfer.checkpoint import (
    Checkpoint,
    Positions,
    checkpoint_path,
    cluster_of,
    new_job_id,
)
from firearrow.client.cli.transfer.forwarding import Forwarding, Target, Totals, report
from firearrow.client.cli.transfer.message_file import InvalidRow
from firearrow.client.send.queue_selection import hash_index, same_queue

JOB = "import"
HEAD_BYTES = 1 << 20
QUEUES = 8
"""Of a topic that is created, if the file names no queues."""


async def import_messages(call: Call) -> int:
    """What `firearrow topic import` does; the exit code."""
    given = call.arguments
    with _file(given.file) as path:
        arguments = {"target": cluster_of(call.options), "topic": given.topic, "file": str(path.absolute())}
        kept = None if given.file == "-" else checkpoint_path(given.checkpoint, JOB, arguments)
        with Checkpoint.open(kept, JOB, arguments, again=given.again) as checkpoint:
            return await _import(call, path, checkpoint)


@contextlib.contextmanager
def _file(name: str) -> Iterator[Path]:
    """The file; what comes from the input is written to a temporary one, as it is read several times. ConfigError."""
    if name != "-":
        path = Path(name)
        if path.is_dir():
            raise ConfigError(
                f"{name} is a folder: name a file in it; `firearrow spark import` takes whole exports"
            )
        if not path.is_file() or not os.access(path, os.R_OK):
            raise ConfigError(f"cannot read {name}: there is no such file, or it may not be read")
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="firearrow-") as file:
        try:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
        except OSError as error:
            raise ConfigError(f"cannot keep the input in {file.name}: {error.strerror}") from None
        yield Path(file.name)


async def _import(call: Call, path: Path, checkpoint: Checkpoint) -> int:
    given, state, source = call.arguments, checkpoint.state, f"{path.name}/0"
    identity = _identity(path)
    if state and state["file"] != identity:
        raise ConfigError(
            f"{path} has changed since its import began: --again imports it from its first message"
        )
    if state and state["done"]:
        call.output.note(f"{path} was imported already: --again imports it once more")
        refused = Totals(**state["totals"]).refused
        if refused:
            call.output.note(f"{refused} of its messages were not sent")
        return FOUND_TROUBLE if refused else OK
    parquet = message_file.is_parquet(path)
    rows = _count(path, parquet=parquet, verify=given.verify)
    target = await Target.of(call, call.options, given.topic, partial(_queues_in, path, parquet=parquet))
    positions = {source: Positions.of(state["positions"]) if state else Positions(1)}
    ends = {} if state else await target.ends()
    job = state["id"] if state else new_job_id(JOB)
    first, floors = {source: 1}, dict(ends)
    forwarding = Forwarding(call, checkpoint, target, job, given.topic, positions, first, ends, floors)
    if state:
        forwarding.load(state)

    def more_state(*, done: bool = False) -> dict[str, Any]:
        return {"file": identity, "positions": positions[source].saved(), "done": done}

    forwarding.more_state = more_state
    forwarding.place = lambda _, number: f"{path.name}: {'row' if parquet else 'line'} {number}"
    done = positions[source].next - 1
    with progress_bar(f"import {path.name}", rows, quiet=given.quiet, done=done, text=messages) as advance:
        await forwarding.run(partial(_messages, forwarding, path, advance, parquet=parquet))
    facts = await forwarding.verify() if given.verify and forwarding.named else {}
    code = report(forwarding, facts, {"file": str(path)})
    forwarding.more_state = partial(more_state, done=True)
    forwarding.save()
    return code


def _identity(path: Path) -> dict[str, Any]:
    """By which a file that was changed between two runs is recognized."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        file.seek(max(size - HEAD_BYTES, 0))
        return {"bytes": size, "head": zlib.crc32(head), "tail": zlib.crc32(file.read())}


def _count(path: Path, *, parquet: bool, verify: bool) -> int:
    """How many rows the file has. ConfigError: it is not what its manifest describes."""
    crc, lines = message_file.crc_and_lines(path)
    manifest = path.with_name(f"{path.name}.manifest")
    if verify and manifest.exists():
        try:
            facts = orjson.loads(manifest.read_bytes())
            expected = int(facts["fileBytes"]), int(facts["fileCrc"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{manifest} cannot be read: delete it, or give --no-verify") from None
        if (path.stat().st_size, crc) != expected:
            raise ConfigError(
                f"{path} is not the file that was exported, by {manifest}: delete the manifest if it was edited"
            )
    return int(message_file.open_parquet(path).metadata.num_rows) if parquet else lines


@contextlib.contextmanager
def _rows(path: Path, *, parquet: bool) -> Iterator[Iterator[tuple[int, Mapping[str, Any] | InvalidRow]]]:
    if parquet:
        yield message_file.parquet_rows(path)
        return
    with path.open("rb") as file:
        yield message_file.json_rows(file)


def _queues_in(path: Path, *, parquet: bool) -> int:
    """How many queues the topic of one broker had that the file came from."""
    with _rows(path, parquet=parquet) as rows:
        ids = [
            row["queueId"]
            for _, row in rows
            if isinstance(row, Mapping) and isinstance(row.get("queueId"), int)
        ]
    return min(max(ids, default=QUEUES - 1) + 1, 1024)


async def _messages(
    forwarding: Forwarding, path: Path, advance: Advance, *, parquet: bool
) -> AsyncGenerator[tuple[str, int, Message, MessageQueue], None]:
    """What is left to be sent."""
    [(source, positions)] = forwarding.positions.items()
    given, target, brokers, expected = forwarding.call.arguments, forwarding.target, [], 1
    with _rows(path, parquet=parquet) as rows:
        for number, row in rows:
            positions.passed(expected, number)
            expected = number + 1
            if isinstance(row, InvalidRow):
                if not positions.is_done(number):
                    forwarding.refuse(source, number, str(row))
                continue
            broker = str(row.get("broker") or "")
            if broker not in brokers:
                brokers.append(broker)
            if positions.is_done(number):
                continue
            advance(1)
            try:
                message = message_file.message_of(row, target.topic, check_crc=given.check_crc)
                yield source, number, message, _queue(row, number, message, brokers, target)
            except InvalidRow as error:
                forwarding.refuse(source, number, str(error))


def _queue(
    row: Mapping[str, Any], number: int, message: Message, brokers: list[str], target: Target
) -> MessageQueue:
    """That of its own number; without one, that of its sharding key, or the next one. InvalidRow."""
    queue_id = row.get("queueId")
    if queue_id is None:
        key = message.sharding_key
        index = number if key is None else hash_index(key, len(target.queues))
        return target.queues[index % len(target.queues)]
    if not isinstance(queue_id, int) or queue_id < 0:
        raise InvalidRow("queueId is not a number from 0 on")
    queue = MessageQueue(target.topic, str(row.get("broker") or ""), queue_id)
    return same_queue(queue, brokers, target.queues)
