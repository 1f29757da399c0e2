"""Each example runs as a user runs it, and prints what it should."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.client.base.errors import RequestReplyTimeout
from firearrow.client.base.message import Message
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.support.fork_server import run_forked

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTPUT = {
    "worker_with_retries.py": "all 14 orders handled",
    "batch.py": "in batches: 2000 messages",
    "request_reply.py": "1+2+3+4 = 10",
    "broadcast_cache.py": "3 caches hold 100 prices each",
    "transaction.py": "paid: ['order 1', 'order 3']",
    "lake_export.py": "the table has 30 rows, 30 different orders",
    "fastapi_service.py": "received: ['book', 'lamp', 'pen']",
    "outbox.py": "mails about: ['order 1', 'order 4']",
    "tracing.py": "one trace: POST /orders > send example-traced-orders > process example-traced-orders > mail",
}
ARGUMENTS = {"batch.py": ["2000"]}


def test_every_example_is_run() -> None:
    of_spark = set(EXAMPLES.glob("spark_*.py"))  # tests/spark runs them
    assert {path.name for path in set(EXAMPLES.glob("*.py")) - of_spark} == set(OUTPUT)


@pytest.mark.parametrize("name", sorted(OUTPUT))
def test_an_example(name: str, name_server: str) -> None:
    program = f"import runpy; runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    environment = os.environ | {"NAMESRV_ADDR": name_server}
    done = run_forked("-c", program, *ARGUMENTS.get(name, []), environment=environment, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert OUTPUT[name] in done.stdout, done.stdout + done.stderr


async def test_a_request_whose_asker_is_gone_is_no_error(name_server: str) -> None:
    async with Producer(unique("gone"), name_server=name_server) as producer:
        with pytest.raises(RequestReplyTimeout):
            await producer.request(Message("example-sums", b"3+4"), timeout_s=0.1)
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / "request_reply.py"), env=os.environ | {"NAMESRV_ADDR": name_server},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(program.communicate(), 60)
    assert program.returncode == 0
    assert b"1+2+3+4 = 10" in output
    assert errors == b""
