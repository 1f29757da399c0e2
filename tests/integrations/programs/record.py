"""What a program gets from its test by the environment, and the file in which its tasks record what they do."""

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from firearrow.client import ClientOptions, Credentials, TlsOptions
from firearrow.client.integrations.task_producer import TaskOptions

QUEUE, RECORD, CLIENT = "TASKS_QUEUE", "TASKS_RECORD", "TASKS_CLIENT"
OPTIONS = TaskOptions(invisible_s=3, send_timeout_s=30)


def queue() -> str:
    return os.environ[QUEUE]


def client() -> ClientOptions:
    """`CLIENT`: a JSON object with `user`, `authority` and `namespace`, each of which may be missing."""
    given = json.loads(os.environ.get(CLIENT, "{}"))
    return ClientOptions(
        credentials=Credentials(*given["user"]) if "user" in given else None,
        tls=TlsOptions(authority=given["authority"]) if "authority" in given else False,
        namespace=given.get("namespace"),
    )


def work(number: int, seconds: float) -> None:
    """The task."""
    _write(f"start {number}")
    time.sleep(seconds)
    _write(f"end {number}")


def _write(text: str) -> None:
    file = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text} {os.getpid()}\n".encode())
    os.close(file)


class Step(NamedTuple):
    what: str
    number: int
    pid: int


def steps(record: Path, what: str = "") -> list[Step]:
    """What tasks did so far; `what`: only `start`, or only `end`."""
    lines = record.read_text().splitlines() if record.exists() else []
    found = [Step(name, int(number), int(pid)) for name, number, pid in map(str.split, lines)]
    return [step for step in found if step.what == (what or step.what)]
