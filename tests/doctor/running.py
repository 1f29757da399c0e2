"""Runs `firearrow doctor` in this process, and reads what it says."""

import io
import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from firearrow._native.store_checks.findings import Finding
from firearrow.client.cli.doctor.checks import run
from firearrow.client.cli.doctor.command import CHECKS, main
from firearrow.client.cli.doctor.facts import Broker, Facts
from tests.support.broker_process import BrokerProcess

QUICK = "--stuck-after", "1s", "--watch", "500ms"


class Said(NamedTuple):
    """`findings`: those of all checks. `code`: the exit code."""

    code: int
    findings: list[dict[str, str]]
    skipped: list[dict[str, str]]

    def of(self, check: str) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["check"] == check]

    def about(self, subject: str) -> dict[str, dict[str, str]]:
        """Check → its finding about it."""
        return {each["check"]: each for each in self.findings if each["subject"] == subject}


def doctor(*arguments: str, state: Path | None = None) -> Said:
    """`state`: the folder where it remembers brokers; None: it has seen none before."""
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as fresh, mock.patch.dict(os.environ):
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[name] = fresh if state is None else str(state)
        with redirect_stdout(output):
            code = main(arguments)
    rows = [json.loads(line) for line in output.getvalue().splitlines()]
    skipped = [row for row in rows if row["severity"] == "NOT_CHECKED"]
    return Said(code, [row for row in rows if row["severity"] != "NOT_CHECKED"], skipped)


def doctor_of(broker: BrokerProcess, *arguments: str) -> Said:
    return doctor("-n", broker.running.name_server, *QUICK, *arguments)


def found_in(facts: Facts, check: str) -> list[Finding[str]]:
    """What one check finds in these facts."""
    checks = [each for each in CHECKS if each.name == check]
    assert checks
    return run(checks, facts).findings


def facts_of(*brokers: Broker, now_ms: int = 1_000_000_000_000) -> Facts:
    return Facts(now_ms, brokers={broker.name: broker for broker in brokers})


def machine(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """GET_MACHINE of a healthy broker; `changes` replace members."""
    disk = {
        "folder": "/store",
        "total": 1 << 40,
        "free": 1 << 39,
        "inodesFree": 1 << 20,
        "inodesTotal": 1 << 21,
        "fileSystem": "ext4",
        "device": "sda",
        "writeCache": "write back",
    }
    facts = {
        "nowMs": 1_000_000_000_000,
        "listen": ["0.0.0.0:10911", "0.0.0.0:10909"],
        "advertised": "",
        "files": {"used": 30, "limit": 1024},
        "systemFiles": {"used": 1000, "limit": 1 << 20},
        "mappings": {"used": 200, "limit": 65530},
        "tasks": {"used": None, "limit": None},
        "cpu": {"limit": None, "throttledShare": None},
        "memory": {"limit": None, "used": None},
        "flush": {"mode": "ASYNC_FLUSH", "intervalMs": 500},
        "store": disk,
        "log": disk,
        "syncMs": 1.0,
        "syncFault": None,
        "syncWaitedMs": None,
        "lastBackup": None,
        "differences": [],
    }
    return facts | changes


def severities(findings: Iterable[Finding]) -> list[str]:
    return [finding.severity.name for finding in findings]
