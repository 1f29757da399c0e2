"""Export: a topic written to a file of JSON Lines or Parquet, which can be interrupted and continued.

While it runs there are FILE.part with whole lines and FILE.progress, which says how many bytes of it count and where to
read on. Parquet is made from the lines at the end, as its files cannot be continued. At the end the file is read again,
and FILE.manifest has what it contains. FILE itself is there only when it is complete.
"""

import contextlib
import os
import sys
import time
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from firearrow._native.base.durable_files import replace_durably
from firearrow._native.base.progress_bar import Advance, messages, progress_bar
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.times import now_ms
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.messages.message_view import Decode, body_crc, whole_row
from firearrow.client.cli.messages.queue_reader import TopicReader
from firearrow.client.cli.messages.selection import Selection
from firearrow.client.cli.messages.send import Pace
from firearrow.client.cli.output import Column, Kind
from firearrow.client.cli.transfer import message_file
from firearrow.client.cli.transfer.checkpoint import Checkpoint, cluster_of
from firearrow.client.cli.transfer.forwarding import until_it_works
from firearrow.client.cli.transfer.reading import Losses, Plan, Reading

SAVE_S = 1.0
SUMMARY_COLUMNS = (
    Column("messages", "messages", Kind.COUNT),
    Column("missing", "missing", Kind.COUNT),
    Column("damaged", "damaged", Kind.COUNT),
    Column("fileBytes", "file", Kind.BYTES),
)


@dataclass(slots=True)
class Written:
    """What the file has so far. `crc_sum`: of the CRCs of all bodies, by which copies are compared."""

    file_bytes: int = 0
    crc: int = 0
    messages: int = 0
    crc_sum: int = 0
    queues: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, line: bytes, message: ReceivedMessage, *, unreadable: bool) -> None:
        self.file_bytes += len(line)
        self.crc = zlib.crc32(line, self.crc)
        self.messages += 1
        self.queues[key] = self.queues.get(key, 0) + 1
        self.crc_sum += 0 if unreadable else body_crc(message.body)

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("file_bytes", "crc", "messages", "crc_sum", "queues")}


async def export(call: Call) -> int:
    """What `firearrow topic export` does; the exit code."""
    given, selection = call.arguments, Selection.of(call.arguments)
    if given.file == "-":
        return await _to_output(call, selection)
    path = Path(given.file)
    parquet = message_file.is_parquet(path)
    if parquet:
        message_file.pyarrow()
    _check_new(path)
    arguments = {"namesrv": cluster_of(call.options), "topic": given.topic, **selection_text(given)}
    with Checkpoint.open(_beside(path, "progress"), "export", arguments) as checkpoint:
        exporting = await Export.of(call, selection, path, checkpoint)
        await exporting.read()
        return exporting.finish(parquet=parquet)


def _check_new(path: Path) -> None:
    """ConfigError: it exists, or cannot be made."""
    if path.exists():
        raise ConfigError(f"{path} exists: name a new file")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")


def selection_text(given: Any) -> dict[str, Any]:  # noqa: ANN401 (argparse's values)
    """The arguments of a selection, as they were typed."""
    names = ("start", "to", "key", "tag", "grep", "ids", "sql", "limit")
    return {name: getattr(given, name) for name in names}


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


@dataclass(slots=True)
class Export:
    """One export to a file, its first run or a later one."""

    call: Call
    path: Path
    checkpoint: Checkpoint
    selection: Selection
    reading: Reading
    written: Written
    began_ms: int

    @classmethod
    async def of(cls, call: Call, selection: Selection, path: Path, checkpoint: Checkpoint) -> "Export":
        given, admin, state = call.arguments, await call.admin(), checkpoint.state
        if state:
            plan, written = Plan.load(state["plan"]), Written(**state["written"])
            losses, began_ms = Losses(**state["losses"]), state["beganMs"]
        else:
            reader = TopicReader(admin, given.topic, sql=given.sql)
            plan = await Plan.of(reader, selection, {})
            written, losses, began_ms = Written(), await Losses.of(reader), now_ms()
        reading = Reading(admin, given.topic, given.sql, plan, losses)
        made = cls(call, path, checkpoint, selection, reading, written, began_ms)
        if not state:
            made._open(truncate=True).close()
            made._save()
        return made

    # ---- reading ----

    async def read(self) -> None:
        """Write what is left. ClientError: a file cannot be written, or a broker does not answer."""
        given, total = self.call.arguments, self.reading.plan.total
        try:
            with self._open(truncate=False) as file:
                with progress_bar(
                    f"export {given.topic}", total, quiet=given.quiet, text=messages
                ) as advance:
                    await until_it_works(self.call, lambda: self._read(file, advance))
                self._sync(file)
        except OSError as error:
            part = _beside(self.path, "part")
            raise ClientError(f"cannot write {part}: {error.strerror}; the same command continues") from None
        self._save()

    async def _read(self, file: IO[bytes], advance: Advance) -> None:
        given, plan = self.call.arguments, self.reading.plan
        wanted, limit = plan.wanted(self.selection), self.selection.limit
        pace, saved_s = Pace(given.rate, given.bytes_rate), time.monotonic()
        async with contextlib.aclosing(self.reading.messages()) as found:
            async for key, message in found:
                if limit is not None and self.written.messages >= limit:
                    break
                self.reading.is_damaged(message)
                if wanted(message):
                    await pace.wait(message.store_size)
                    row = whole_row(message)
                    line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE, default=str)
                    file.write(line)
                    self.written.add(key, line, message, unreadable=row["body"] is None)
                plan.positions[key].done(message.queue_offset)
                advance(1)
                if time.monotonic() - saved_s > SAVE_S:
                    self._sync(file)
                    self._save()
                    saved_s = time.monotonic()

    def _open(self, *, truncate: bool) -> IO[bytes]:
        part = _beside(self.path, "part")
        try:
            file = part.open("wb" if truncate else "r+b")
            if not truncate:
                if os.fstat(file.fileno()).st_size < self.written.file_bytes:
                    file.close()
                    progress = self.checkpoint.path
                    raise ConfigError(
                        f"{part} is shorter than it was: delete it and {progress} to start again"
                    )
                file.truncate(self.written.file_bytes)
                file.seek(self.written.file_bytes)
        except OSError as error:
            raise ConfigError(f"cannot write {part}: {error.strerror}") from None
        return file

    def _sync(self, file: IO[bytes]) -> None:
        """OSError."""
        file.flush()
        os.fsync(file.fileno())

    def _save(self) -> None:
        self.checkpoint.state = {
            "plan": self.reading.plan.saved(),
            "written": self.written.row(),
            "losses": asdict(self.reading.losses),
            "beganMs": self.began_ms,
        }
        self.checkpoint.save()

    # ---- the end ----

    def finish(self, *, parquet: bool) -> int:
        """Check what was written, and give the file its name; the exit code. ClientError: it is not what was read."""
        part, written = _beside(self.path, "part"), self.written
        try:
            crc, lines = message_file.crc_and_lines(part)
            if (crc, lines) != (written.crc, written.messages):
                raise ClientError(
                    f"{part} is not what was written: {lines} lines with CRC {crc:08x} instead of {written.messages} "
                    f"with {written.crc:08x}; delete it and {self.checkpoint.path} to start again"
                )
            made = self._parquet_of(part) if parquet else part
            facts = self._manifest(made)
            text = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            replace_durably(str(_beside(self.path, "manifest")), text)
            made.rename(self.path)
            part.unlink(missing_ok=True)
        except OSError as error:
            raise ClientError(
                f"cannot write {self.path}: {error.strerror}; the same command continues"
            ) from None
        self.checkpoint.remove()
        return self._report(facts)

    def _parquet_of(self, part: Path) -> Path:
        """The same messages as Parquet. ClientError: they are not."""
        new = _beside(self.path, "new")
        rows = message_file.write_parquet(part, new)
        crc_sum = 0
        for _, row in message_file.parquet_rows(new):
            assert isinstance(row, dict)
            crc_sum += body_crc(row["body"]) if "body" in row else 0
        if (rows, crc_sum) != (self.written.messages, self.written.crc_sum):
            raise ClientError(
                f"{new} does not have the {self.written.messages} messages that were read: delete it"
            )
        return new

    def _manifest(self, part: Path) -> dict[str, Any]:
        crc, _ = message_file.crc_and_lines(part)
        given, losses = self.call.arguments, self.reading.losses
        plan = self.reading.plan
        return {
            "topic": given.topic,
            "namesrv": self.call.options.name_server,
            "selection": {name: text for name, text in selection_text(given).items() if text},
            "messages": self.written.messages,
            "queues": {
                key: {"end": end, "messages": self.written.queues.get(key, 0)}
                for key, end in plan.ends.items()
            },
            "bodyCrcSum": self.written.crc_sum,
            "fileBytes": part.stat().st_size,
            "fileCrc": crc,
            "missing": losses.missing,
            "missingRanges": losses.ranges,
            "damaged": losses.damaged,
            "unreadable": losses.unreadable,
            "beganMs": self.began_ms,
            "endedMs": now_ms(),
        }

    def _report(self, facts: dict[str, Any]) -> int:
        losses = self.reading.losses
        names = ("topic", "messages", "missing", "damaged", "fileBytes", "fileCrc")
        row = {"file": str(self.path), **{name: facts[name] for name in names}, **losses.row()}
        self.call.output.record(row, SUMMARY_COLUMNS)
        return report_losses(self.call, losses)


def report_losses(call: Call, losses: Losses) -> int:
    """The exit code."""
    texts = list(losses.texts())
    for text in texts:
        call.output.note(text)
    return FOUND_TROUBLE if texts else OK


async def _to_output(call: Call, selection: Selection) -> int:
    """Write the lines to the output, which cannot be continued."""
    given, admin = call.arguments, await call.admin()
    reader = TopicReader(admin, given.topic, sql=given.sql)
    plan, losses = await Plan.of(reader, selection, {}), await Losses.of(reader)
    reading = Reading(admin, given.topic, given.sql, plan, losses)
    pace, written = Pace(given.rate, given.bytes_rate), 0
    async with contextlib.aclosing(reading.messages()) as found:
        async for _, message in found:
            if selection.limit is not None and written >= selection.limit:
                break
            reading.is_damaged(message)
            if plan.wanted(selection)(message):
                await pace.wait(message.store_size)
                sys.stdout.write(orjson.dumps(whole_row(message, Decode.AUTO), default=str).decode() + "\n")
                written += 1
    return report_losses(call, reading.losses)
