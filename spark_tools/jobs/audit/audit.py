"""audit: checks stores in bulk: records, queues and index; counts what they contain. A program for
spark-submit.

Exit code 0: no findings, 1: findings, 2: wrong usage. The stores are only read.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from firearrow._native.base.verbs import argument
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.audit import StoreAudit, StoreResult
from firearrow._native.store_checks.small_files import unusable_config_files
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.audit.duplicate_ids import Duplicates, find_duplicates
from firearrow.spark_tools.jobs.audit.html_report import page
from firearrow.spark_tools.jobs.audit.parquet_tables import write_tables
from firearrow.spark_tools.jobs.audit.spark_executor import SparkExecutor
from firearrow.spark_tools.jobs.audit.summary import document
from firearrow.spark_tools.jobs.program import FAILED, OK, Program
from firearrow.spark_tools.offline.store_source import StoreSource


def stores_of(paths: tuple[str, ...]) -> list[StoreFolder]:
    """Stores of folders, or NAME=FOLDER. InvalidOption: no store, or two of one name."""
    named = (path.partition("=") for path in StoreSource(paths).paths)
    return [StoreFolder(name, root) for name, _, root in named]


JOB = "audit"
SHOWN_MAX = 20
TOP_MAX = 100_000
INDEX_SLOTS_MAX = 100_000_000
DELAY_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckArguments:
    """Which stores to check, and what to check."""

    path: list[str] | None = argument(
        "--path",
        None,
        "folder of a store, or NAME=FOLDER; can be repeated",
        metavar="FOLDER",
        action="append",
    )
    crc: bool = argument("--crc", True, "check the CRC of each body")
    index: bool = argument("--index", True, "check the index of keys")
    index_slots: int = argument(
        "--index-slots",
        0,
        "maxHashSlotNum of the broker; 0: detect it from the files (default 0)",
        metavar="N",
        type=int,
    )
    delay_levels: str | None = argument(
        "--delay-levels",
        None,
        "messageDelayLevel of the broker, to check times of delivery exactly",
        metavar="LEVELS",
    )
    duplicates: bool = argument(
        "--duplicates", False, "count messages of a topic with the same unique key, exactly"
    )

    def check(self) -> None:
        if not self.path:
            raise InvalidOption("--path: the folder of a store is needed")
        if not 0 <= self.index_slots <= INDEX_SLOTS_MAX:
            raise InvalidOption(f"--index-slots: {self.index_slots} is not within 0 and {INDEX_SLOTS_MAX:,}")

    def delays_s(self) -> tuple[int, ...]:
        if self.delay_levels is None:
            return ()
        levels = self.delay_levels.split()
        if not levels or not all(
            level[-1] in DELAY_UNITS and level[:-1].isdecimal() and len(level) <= 10 for level in levels
        ):
            raise InvalidOption(f"--delay-levels: {self.delay_levels!r}; write them as 1s 5s 10s 1m 2h")
        return tuple(int(level[:-1]) * DELAY_UNITS[level[-1]] for level in levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportArguments:
    """What the audit prints and writes."""

    report: Path | None = argument(
        "--report",
        None,
        "write audit.json, audit.html and Parquet tables of what was found to this folder",
        metavar="FOLDER",
        type=Path,
    )
    top: int = argument(
        "--top",
        100,
        "number of topics, queues, tags and hosts in the report (default %(default)s)",
        metavar="N",
        type=int,
    )
    quiet: bool = argument("--quiet", False, "show no progress on stderr")

    def check(self) -> None:
        if not 1 <= self.top <= TOP_MAX:
            raise InvalidOption(f"--top: {self.top} is not within 1 and {TOP_MAX:,}")


def audit(checks: CheckArguments, own: ReportArguments) -> int:
    """Check the records, queues and index of stores, and count what is in them. The exit code is 1 if there are
    findings.

        firearrow spark audit --path ~/firearrow/store
        firearrow spark audit --path a=/stores/a --path b=/stores/b --report /data/audit
    """
    checks.check()
    own.check()
    stores, delays_s = stores_of(tuple(checks.path or ())), checks.delays_s()
    for store in stores:
        store.segments()  # a folder that is not a store is found before Spark starts
    folder = _create_folder(own.report)
    spark = task_runner.context(JOB)
    began, seen = time.monotonic(), []
    for store in stores:
        auditing = StoreAudit(
            store,
            SparkExecutor(spark, quiet=own.quiet),
            check_crc=checks.crc,
            with_index=checks.index,
            delays_s=delays_s,
            index_slots=checks.index_slots,
        )
        seen.append(auditing.run())
        for finding in unusable_config_files(store):
            seen[-1].findings.add(finding)
    doubles = find_duplicates(SparkSession(spark), stores) if checks.duplicates else None
    result = document(seen, own.top, round(time.monotonic() - began, 3))
    if doubles is not None:
        result["duplicates"] = doubles.as_json()
    if folder is not None:
        _write(folder, seen, result, doubles, own.top)
    show(Console(), seen, doubles)
    return OK if result["clean"] else FAILED


def show(console: Console, stores: list[StoreResult], doubles: Duplicates | None) -> None:
    """A summary for the terminal."""
    for seen in stores:
        numbers = seen.numbers
        console.print(
            f"{seen.store.name}: {numbers['records']:,} records, {numbers['log_bytes']:,} bytes, {len(seen.queues):,} "
            f"queues, {numbers['index entries']:,} index entries, {seen.seconds:.1f} s",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        for line in seen.state:
            console.print(f"note: {line}", markup=False, highlight=False, soft_wrap=True)
        if not seen.findings:
            console.print("no findings", markup=False, highlight=False)
            continue
        table = Table("finding", Column("count", justify="right"))
        for kind, count in sorted(seen.findings.totals.items()):
            table.add_row(escape(kind), f"{count:,}")
        console.print(table)
        for each in seen.findings.ordered()[:SHOWN_MAX]:
            line = f"{each.kind}: {each.where.file} at {each.where.position:,}: {each.text}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if doubles is not None:
        console.print(doubles.as_text, markup=False, highlight=False, soft_wrap=True)


def _create_folder(folder: Path | None) -> Path | None:
    """Create the report's folder, and check that it is writable, before the audit starts."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "audit.json").write_bytes(b"{}\n")
    except OSError as error:
        raise InvalidOption(f"--report: {folder} cannot be written: {error.strerror}") from None
    return folder


def _write(
    folder: Path, seen: list[StoreResult], result: dict[str, Any], doubles: Duplicates | None, top: int
) -> None:
    try:
        text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
        (folder / "audit.json").write_bytes(text + b"\n")
        (folder / "audit.html").write_text(page(seen, top, doubles.as_text if doubles else None), "utf-8")
    except OSError as error:
        raise InvalidOption(f"--report: {folder} cannot be written: {error.strerror}") from None
    write_tables(folder, seen)


cli = Program("audit", audit, (CheckArguments, ReportArguments))

if __name__ == "__main__":
    cli.main()
