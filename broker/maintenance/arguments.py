"""The arguments of `firearrow store`: what its verbs share, each declared once."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from firearrow._native.base.verbs import agrees, argument, integer
from firearrow.broker.base.config import apply, read
from firearrow.broker.base.errors import UsageError
from firearrow.broker.base.options import Options
from firearrow.broker.maintenance.dump import BodyFormat, RecordQuery
from firearrow.broker.maintenance.verify import VerifyOptions
from firearrow.broker.replication.pair_identity import ASYNC_MASTER, SYNC_MASTER

JOBS_MAX, INDEX_SLOTS_MAX, QUEUE_ID_MAX, LONG_MAX = 256, 1 << 30, 65535, (1 << 63) - 1


class Declined(Exception):
    """The user does not want it. Exit code 1."""


@dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """Of every verb."""

    folder: Path = argument("folder", type=Path, help="folder of the store")

    @property
    def root(self) -> str:
        return str(self.folder)


@dataclass(frozen=True, kw_only=True)
class ReportArguments(StoreArguments):
    json: bool = argument("--json", default=False, help="print one JSON object")
    quiet: bool = argument("--quiet", default=False, help="show no progress bar")
    jobs: int = argument(
        "--jobs",
        default=0,
        type=integer(0, JOBS_MAX),
        metavar="N",
        help="number of processes; 0: one per core (default 0)",
    )


@dataclass(frozen=True, kw_only=True)
class IndexArguments:
    index_slots: int = argument(
        "--index-slots",
        default=0,
        type=integer(0, INDEX_SLOTS_MAX),
        metavar="N",
        help="slots of index files (maxHashSlotNum); 0: detect (default 0)",
    )


@dataclass(frozen=True, kw_only=True)
class CheckArguments(IndexArguments, ReportArguments):
    config: Path | None = argument(
        "--config",
        default=None,
        type=Path,
        metavar="FILE",
        help="broker.conf, if it sets messageDelayLevel",
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
    live: bool = argument(
        "--live", default=False, help="allow a running broker; check up to the current end of the log"
    )
    crc: bool = argument("--crc", default=True, help="check the CRC of bodies (default --crc)")
    index: bool = argument("--index", default=True, help="check index files and keys (default --index)")


@dataclass(frozen=True, kw_only=True)
class ConfirmedArguments(StoreArguments):
    yes: bool = argument("--yes", default=False, help="do not ask for confirmation")

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
    dry_run: bool = argument("--dry-run", default=False, help="print the steps, and change nothing")
    cut_log_at: int | None = argument(
        "--cut-log-at",
        default=None,
        type=integer(0, LONG_MAX),
        metavar="OFFSET",
        help="truncate the log at this physical offset",
    )
    drop_damaged: bool = argument(
        "--drop-damaged", default=False, help="replace unreadable parts inside the log by filler records"
    )
    reset_offsets: bool = argument(
        "--reset-offsets", default=False, help="move offsets beyond the end of a queue to its end"
    )


@dataclass(frozen=True, kw_only=True)
class BackupArguments(ReportArguments):
    target: Path = argument("target", type=Path, help="new folder, or a previous backup to replace")
    beside: Path | None = argument(
        "--beside",
        default=None,
        type=Path,
        metavar="FOLDER",
        help="share the full log files of this previous backup",
    )
    copy: bool = argument("--copy", default=False, help="copy all files instead of linking to the store's")
    check: bool = argument("--verify", default=False, help="verify the copy before it replaces the target")


@dataclass(frozen=True, kw_only=True)
class PromoteArguments(ConfirmedArguments):
    role: str | None = argument(
        "--role",
        default=None,
        choices=(ASYNC_MASTER, SYNC_MASTER),
        help="its role from now on (default: that of its old master)",
    )
    force: bool = argument("--force", default=False, help="promote it even if it was fenced")


@dataclass(frozen=True, kw_only=True)
class DumpArguments(IndexArguments, StoreArguments):
    topic: str | None = argument("--topic", default=None, help="only this topic")
    queue: int | None = argument(
        "--queue", default=None, type=integer(0, QUEUE_ID_MAX), metavar="ID", help="only this queue"
    )
    from_offset: int | None = argument(
        "--from-offset",
        default=None,
        type=integer(0, LONG_MAX),
        metavar="OFFSET",
        help="start at this queue offset (with --topic and --queue) or physical offset",
    )
    key: str | None = argument("--key", default=None, help="only records with this key or unique key")
    since: str | None = argument(
        "--since", default=None, metavar="TIME", help="stored at this time or later: ISO 8601, or ms"
    )
    until: str | None = argument(
        "--until", default=None, metavar="TIME", help="stored before this time: ISO 8601, or ms"
    )
    limit: int = argument(
        "--limit",
        default=0,
        type=integer(0, LONG_MAX),
        metavar="N",
        help="maximum number; 0: all (default 0)",
    )
    body: str = argument(
        "--body",
        default=BodyFormat.TEXT.value,
        choices=[each.value for each in BodyFormat],
        help="format of bodies (default %(default)s)",
    )
    body_folder: Path | None = argument(
        "--body-folder", default=None, type=Path, metavar="FOLDER", help="folder that --body file writes to"
    )
    entries: bool = argument(
        "--queue-entries", default=False, help="print the entries of --topic and --queue"
    )
    index: bool = argument("--index", default=False, help="print the headers of the index files")
    checkpoint: bool = argument("--checkpoint", default=False, help="print the checkpoint")
    json: bool = argument("--json", default=False, help="print JSON lines")

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
