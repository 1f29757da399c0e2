"""docs/REPLICATION.md: its commands make a pair, promote the slave, and bring the old master back."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from bench.ports import free_port
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually
from tests.support.killing import killing

GUIDE = Path(__file__).resolve().parents[2] / "docs/REPLICATION.md"
PORTS = ("9876", "10911", "10912", "10921", "10922")


def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    start, use, promote, back = (
        re.sub(r"\d{4,5}", lambda found: ports.get(found[0], found[0]), block)
        for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    )
    names, slave = f"127.0.0.1:{ports['9876']}", f"127.0.0.1:{ports['10921']}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with killing(
        subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            cwd=tmp_path,
            env=os.environ | {"NAMESRV_ADDR": names, "PATH": path, "HOME": str(tmp_path)},
            start_new_session=True,
            text=True,
        )
    ) as shell:
        assert shell.stdin is not None
        try:
            _type(shell.stdin, start)
            eventually(lambda: _in_sync(names, 1), 40, "that the slave follows")
            _type(shell.stdin, use)
            eventually((tmp_path / "slave" / "consumequeue" / "Orders").exists, 40, "the message")
            _type(shell.stdin, promote)
            eventually(lambda: _masters(names) == [slave], 40, "that the slave is the master")
            _type(shell.stdin, back)
            eventually(lambda: _in_sync(names, 1), 40, "that the old master is a slave")
            assert _masters(names) == [slave]
            found = here("message", "find", "Orders", "--from", "2026-01-01", name_server=names)
            assert "hello" in found.out, found
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def _type(shell: IO[str], commands: str) -> None:
    shell.write(commands)
    shell.flush()


def _status(names: str) -> Ran:
    return here("replica", "status", name_server=names)


def _masters(names: str) -> list[str]:
    return [row["address"] for row in _status(names).lines if row["role"] == "master"]


def _in_sync(names: str, slaves: int) -> bool:
    ran = _status(names)
    return ran.code == 0 and sum(row["role"] == "slave" for row in ran.lines) == slaves
