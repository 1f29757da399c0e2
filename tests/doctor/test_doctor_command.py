"""The command: a healthy cluster has no findings; output, exit codes, and the manners of a plugin of Nagios."""

import asyncio
import json
import os
import pty
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.client.cli.doctor.command import CHECKS, main
from firearrow.client.public import (
    ClientOptions,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from tests.doctor.heartbeats import beat
from tests.doctor.running import QUICK, Said, doctor, doctor_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.requests import send

GONE = "127.0.0.1:1"
PLUGIN = re.compile(r"FIREARROW (OK|WARNING|CRITICAL|UNKNOWN): [^|\n]+(\| (\w+=\S+ ?)+)?\n")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("command") / "store") as running:
        yield running


@pytest.fixture
def in_trouble(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as a, broker.connect() as b:
        beat(a, "Trouble", "a\x1b[2J", {"T": "A"})
        beat(b, "Trouble", "b|b", {"T": "B"})
        yield a


def test_a_healthy_broker_has_no_findings(tmp_path: Path) -> None:
    """With real clients at work, which commit every five seconds: it watches them for six."""
    with BrokerProcess(tmp_path / "store") as healthy:
        options = ClientOptions(name_server=healthy.running.name_server)
        said = asyncio.run(_examined_at_work(healthy, options))
    assert said.findings == []
    assert said.code == 0


async def _examined_at_work(broker: BrokerProcess, options: ClientOptions) -> Said:
    got: set[bytes] = set()
    done = asyncio.Event()

    async def listen(messages: list[ReceivedMessage]) -> ConsumeResult:
        got.update(message.body for message in messages)
        if len(got) == 40:
            done.set()
        return ConsumeResult.SUCCESS

    async with Producer("PG", client=options) as producer:
        for number in range(40):
            await producer.send(Message("Healthy", b"%d" % number))
        first = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer("CG", client=options, options=first)
        consumer.subscribe("Healthy", listen)
        async with consumer:
            await asyncio.wait_for(done.wait(), 20)
            here = "-n", broker.running.name_server, "--stuck-after", "1s"
            return await asyncio.to_thread(doctor, *here)


def test_each_check_has_a_name_and_a_line() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) >= 20
    assert all(check.looks_for and not check.looks_for.endswith(".") for check in CHECKS)
    listed = doctor_rows("--list")
    assert [row["check"] for row in listed] == names


def doctor_rows(*arguments: str) -> list[dict[str, str]]:
    done = run_forked("doctor", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_exit_codes(broker: BrokerProcess, in_trouble: ClientSocket) -> None:
    assert doctor_of(broker).code == 1
    assert doctor("-n", GONE).code == 3
    assert doctor("-n", broker.running.name_server, "--watch", "soon").code == 2
    with pytest.raises(SystemExit) as ended:
        main(["--bad"])
    assert ended.value.code == 2


def plugin(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([*arguments, "--nagios"])
    line = capsys.readouterr().out
    assert PLUGIN.fullmatch(line), line
    assert line.count("|") <= 1
    assert line[:-1].isprintable()
    return code, line


def test_a_plugin_of_nagios(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    here = "-n", broker.running.name_server, *QUICK
    code, line = plugin(capsys, *here)
    assert (code, line.split(":")[0]) == (0, "FIREARROW OK")
    assert " lag=0 brokers=1 disk=" in line
    with broker.connect() as client:
        assert send(client, "%DLQ%Sick", b"m").code == 0
        code, line = plugin(capsys, *here)
        assert (code, line.split(":")[0]) == (1, "FIREARROW WARNING")
        assert "1 dead letter" in line
    for arguments in (["-n", GONE], ["--bad"], [*here, "--watch", "soon"], ["--context", "unknown"]):
        code, line = plugin(capsys, *arguments)
        assert (code, line.split(":")[0]) == (3, "FIREARROW UNKNOWN")


def test_a_critical_plugin(
    broker: BrokerProcess, in_trouble: ClientSocket, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = plugin(capsys, "-n", broker.running.name_server, *QUICK)
    assert (code, line.split(":")[0]) == (2, "FIREARROW CRITICAL")


def test_a_terminal_gets_text_without_control_characters(
    broker: BrokerProcess, in_trouble: ClientSocket
) -> None:
    ours, theirs = pty.openpty()
    words = ["firearrow", "doctor", "-n", broker.running.name_server, *QUICK]
    process = ForkedCommand(words, stdout=theirs, env=os.environ | {"NO_COLOR": "1"})
    os.close(theirs)
    text = _read_all(ours)
    assert process.wait(30) == 1
    lines = text.replace("\r", "").splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("CRITICAL group Trouble: its members subscribe differently: ")
    assert [line.split()[0] for line in lines[1:4]] == ["why:", "fix:", "check:"]
    assert re.fullmatch(r"\d+ checks: 1 critical, \d+ warnings?, \d+ notes?, \d+ not checked", lines[-1])


def _read_all(descriptor: int) -> str:
    chunks = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode()
