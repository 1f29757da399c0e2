"""The client and its compiled modules: commands, ids, clocks, checksums; and what it says without a broker."""

import asyncio
import socket
import subprocess
import sys
import threading
import time

import pytest

from firearrow._native.base.clock import Clock
from firearrow._native.base.hash import crc32
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client import Message, Producer
from firearrow.client.base.errors import ClientError


def test_clocks() -> None:
    clock = Clock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    before = clock.monotonic_ms()
    time.sleep(0.05)
    assert 40 <= clock.monotonic_ms() - before < 5000


def test_ids_follow_the_local_month() -> None:
    ids = UniqueIds(b"\x7f\x00\x00\x01", 7, b"abcd")
    made = [ids.next() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(text.startswith("7F000001000761626364") for text in made)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 63, 64, 255, 256, 4096, 4099])
def test_crcs_of_all_lengths(length: int) -> None:
    data = bytes(n * 31 & 0xFF for n in range(length))
    slow = 0xFFFFFFFF
    for byte in data:
        slow ^= byte
        for _ in range(8):
            slow = slow >> 1 ^ (0xEDB88320 if slow & 1 else 0)
    assert crc32(data) == (slow ^ 0xFFFFFFFF) & 0x7FFFFFFF  # as records have it


@pytest.mark.parametrize("serializer", [0, 1])
def test_commands_keep_their_fields(serializer: int) -> None:
    sent = RemotingCommand(
        310, {"a": "Gruppe", "i": "KEYS\x01ключ\x02"}, b"body", opaque=-3, serializer=serializer
    )
    read = RemotingCommand.decode(sent.encode())
    assert (read.code, read.opaque, read.ext, read.body) == (310, -3, sent.ext, b"body")


def test_a_producer_without_a_name_server_says_so() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        async def send() -> None:
            async with Producer("portable", name_server=address) as producer:
                await producer.send(Message("orders", b"hello"), timeout_s=2)

        with pytest.raises(ClientError):
            asyncio.run(send())


def test_the_blocking_client_has_its_own_loop() -> None:
    from firearrow.client.threads.loop_thread import LoopThread  # noqa: PLC0415

    thread = LoopThread.current()

    async def here() -> str:
        return threading.current_thread().name

    assert thread.run(here) != threading.current_thread().name


def test_a_broker_needs_linux() -> None:
    program = (
        "import sys; sys.platform = 'darwin'; from firearrow.client.cli.main import main; main(['broker'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "firearrow broker needs Linux; on this system FireArrow is only a client\n"
