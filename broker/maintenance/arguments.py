"""The arguments of `firearrow store`: what its verbs share, each declared once."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from firearrow._native.base.verbs import REQUIRED, agrees, argument, integer
from firearrow.broker.base.config import apply, read
from firearrow.broker.base.errors import UsageError
from firearrow.broker.base.options import Options
from firearrow.broker.maintenance.dump import BodyFormat, RecordQuery
from firearrow.broker.maintenance.verify import VerifyOptions
from firearrow.broker.replication.log.pair_identity import ASYNC_MASTER, SYNC_MASTER

JOBS_MAX, INDEX_SLOTS_MAX, QUEUE_ID_MAX, LONG_MAX = 256, 1 << 30, 65535, (1 << 63) - 1


class Declined(Exception):
    """The user does not want it. Exit code 1."""


@dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """Of every verb."""

    folder: Path = argument("folder", REQUIRED, "folder of the store", type=Path)

    @property
    def root(self) -> str:
        return str(self.folder)


@dataclass(frozen=True, kw_only=True)
class ReportArguments(StoreArguments):
    json: bool = argument("--json", False, "print one JSON object")
    quiet: bool = argument("--quiet", False, "show no progress bar")
    jobs: int = argument(
        "--jobs",
        0,
        "number of processes; 0: one per core (default 0)",
        type=integer(0, JOBS_MAX),
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class IndexArguments:
    index_slots: int = argument(
        "--index-slots",
        0,
        "slots of index files (maxHashSlotNum); 0: detect (default 0)",
        type=integer(0, INDEX_SLOTS_MAX),
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class CheckArguments(IndexArguments, ReportArguments):
    config: Path | None = argument(
        "--config", None, "broker.conf, if it sets messageDelayLevel", type=Path, metavar="FILE"
    )

    def checks(self, *, crc: bool = True, index: bool = True) -> VerifyOptions:
        """Without the configuration file the delay levels are not known."""
        return VerifyOptions(
            delays_s=tuple(each // 1000 for each in self.delays_ms()) if self.config is not None else (),
            crc=crc,
            index=index,
            index_slots=self.index_slots,
            jobs=self.jobs,
            quiet=self.quiet,
        )

    def delays_ms(self) -> tuple[int, ...]:
        """Those of a new broker if there is no configuration file. UsageError."""
        try:
            levels = read(self.config).get("messageDelayLevel") if self.config is not None else None
            options = apply(Options(), {} if levels is None else {"messageDelayLevel": levels})
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from None
        return options.delay_levels_ms


@dataclass(frozen=True, kw_only=True)
class VerifyArguments(CheckArguments):
    live: bool = argument("--live", False, "allow a running broker; check up to the current end of the log")
    crc: bool = argument("--crc", True, "check the CRC of bodies (default --crc)")
    index: bool = argument("--index", True, "check index files and keys (default --index)")


@dataclass(frozen=True, kw_only=True)
class ConfirmedArguments(StoreArguments):
    yes: bool = argument("--yes", False, "do not ask for confirmation")

    def confirm(self, question: str) -> None:
        """UsageError: there is no terminal. Declined: the answer is no."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise UsageError("there is no terminal to confirm at: use --yes")
        if not agrees(question):
            raise Declined("nothing was changed")


@dataclass(frozen=True, kw_only=True)
class RepairArguments(CheckArguments, ConfirmedArguments):
    dry_run: bool = argument("--dry-run", False, "print the steps, and change nothing")
    cut_log_at: int | None = argument(
        "--cut-log-at",
        None,
        "truncate the log at this physical offset",
        type=integer(0, LONG_MAX),
        metavar="OFFSET",
    )
    drop_damaged: bool = argument(
        "--drop-damaged", False, "replace unreadable parts inside the log by filler records"
    )
    reset_offsets: bool = argument(
        "--reset-offsets", False, "move offsets beyond the end of a queue to its end"
    )


@dataclass(frozen=True, kw_only=True)
class BackupArguments(ReportArguments):
    target: Path = argument("target", REQUIRED, "new folder, or a previous backup to replace", type=Path)
    beside: Path | None = argument(
        "--beside", None, "share the full log files of this previous backup", type=Path, metavar="FOLDER"
    )
    copy: bool = argument("--copy", False, "copy all files instead of linking to the store's")
    check: bool = argument("--verify", False, "verify the copy before it replaces the target")


@dataclass(frozen=True, kw_only=True)
class PromoteArguments(ConfirmedArguments):
    role: str | None = argument(
        "--role",
        None,
        "its role from now on (default: that of its old master)",
        choices=(ASYNC_MASTER, SYNC_MASTER),
    )
    force: bool = argument("--force", False, "promote it even if it was fenced")


@dataclass(frozen=True, kw_only=True)
class DumpArguments(IndexArguments, StoreArguments):
    topic: str | None = argument("--topic", None, "only this topic")
    queue: int | None = argument(
        "--queue", None, "only this queue", type=integer(0, QUEUE_ID_MAX), metavar="ID"
    )
    from_offset: int | None = argument(
        "--from-offset",
        None,
        "start at this queue offset (with --topic and --queue) or physical offset",
        type=integer(0, LONG_MAX),
        metavar="OFFSET",
    )
    key: str | None = argument("--key", None, "only records with this key or unique key")
    since: str | None = argument(
        "--since", None, "stored at this time or later: ISO 8601, or ms", metavar="TIME"
    )
    until: str | None = argument("--until", None, "stored before this time: ISO 8601, or ms", metavar="TIME")
    limit: int = argument(
        "--limit", 0, "maximum number; 0: all (default 0)", type=integer(0, LONG_MAX), metavar="N"
    )
    body: str = argument(
        "--body",
        BodyFormat.TEXT.value,
        "format of bodies (default %(default)s)",
        choices=[each.value for each in BodyFormat],
    )
    body_folder: Path | None = argument(
        "--body-folder", None, "folder that --body file writes to", type=Path, metavar="FOLDER"
    )
    entries: bool = argument("--queue-entries", False, "print the entries of --topic and --queue")
    index: bool = argument("--index", False, "print the headers of the index files")
    checkpoint: bool = argument("--checkpoint", False, "print the checkpoint")
    json: bool = argument("--json", False, "print JSON lines")

    def query(self) -> RecordQuery:
        """UsageError: a time cannot be read."""
        since, until = _time_ms(self.since, "--since"), _time_ms(self.until, "--until")
        return RecordQuery(self.topic, self.queue, self.from_offset, self.key, since, until, self.limit)


def _time_ms(text: str | None, option: str) -> int | None:
    """Parse ISO 8601 (UTC without a zone) or ms."""
    if text is None or text.isdecimal():
        return None if text is None else int(text[:18])
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} must be a time such as 2026-11-21T05:13:00Z, or ms, not {text!r}"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
