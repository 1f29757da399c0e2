"""What users of the plugin get: a real broker as a fixture, in a separate test run."""

import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.client.local_broker import LocalBroker, LocalBrokerError

USERS_TEST = """
import asyncio
import socket

from firearrow.client import Message, Producer


def test_a_service_sends(firearrow_broker):
    async def send():
        async with Producer("orders", name_server=firearrow_broker.name_server) as producer:
            return await producer.send(Message("orders", b"hello"))

    assert asyncio.run(send()).queue_offset == 0


def test_a_broker_of_ones_own(firearrow_fresh_broker, firearrow_broker):
    assert firearrow_fresh_broker.address != firearrow_broker.address
    before = firearrow_fresh_broker.address
    firearrow_fresh_broker.kill()
    firearrow_fresh_broker.start()
    assert firearrow_fresh_broker.address == before
    host, port = before.split(":")
    socket.create_connection((host, int(port)), 1).close()
"""


def test_the_fixtures_are_there_without_any_setting(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(USERS_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    with pytest.raises(LocalBrokerError, match="store"):
        LocalBroker(tmp_path / "store")


def test_a_temporary_store_is_taken_away() -> None:
    with LocalBroker() as broker:
        folder = broker.store.parent
        assert folder.is_dir()
    assert not folder.exists()
