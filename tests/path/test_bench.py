"""The bench, tiny: its figures tell nothing, but that every row still runs and that the load sees what is wrong."""

import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import compare, flow, frames, load, servers
from bench.load import LoadError
from bench.rows import OURS, server_of


@pytest.fixture(autouse=True)
def tools() -> None:
    if missing := [tool for tool in ("cc", "taskset") if shutil.which(tool) is None]:
        pytest.skip(f"the bench needs {missing}")


def test_every_row_gives_figures_and_goals() -> None:
    told = compare.main(["--part", "0.002", "--rounds", "1", "--without", "apache", "redis", "--no-record"])
    assert [row.row for row in told] == [row.name for row in compare.rows()]
    for row, made in zip(told, compare.rows(), strict=True):
        measured = {name for name in made.work if not server_of(name).startswith(("apache", "redis"))}
        assert set(row.figures) == measured
        assert row.ours in measured
        assert all(of["rate"] > 0 and of["max"] >= of["p50"] > 0 for of in row.figures.values())
        assert row.goals


def test_a_refused_connection_is_an_error() -> None:
    with pytest.raises(LoadError, match="Connection refused"):
        load.drive(("127.0.0.1", servers.free_port()), [b"x" * 8], connections=1, depth=1, requests=1)


@contextmanager
def answering(*frames_back: bytes) -> Iterator[tuple[str, int]]:
    """A server that answers the first connection with these bytes, whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"".join(frames_back))
                while peer.recv(1 << 16):
                    pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(10)


def answer(opaque: int, code: int = 0, queue_offset: int = 0, body: bytes = b"") -> bytes:
    header = (
        f'{{"code":{code},"extFields":{{"queueOffset":"{queue_offset}","nextBeginOffset":"1"}},"opaque":{opaque}}}'
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def record(body: bytes, *, queue_offset: int = 0, crc: int | None = None) -> bytes:
    import zlib

    told = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    head = struct.pack(
        ">iIIiiqqiq8sq8siqi", 91 + len(body) + 2, 0xDAA320A7, told, 0, 0, queue_offset, 0, 0, 0, bytes(8), 0,
        bytes(8), 0, 0, len(body),
    )  # fmt: skip
    return head + body + b"\x01T" + struct.pack(">h", 0) + b""


SENDS = [frames.send_frame(0, bytes(16), n + 1) for n in range(2)]


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ((answer(1), answer(2, queue_offset=1)), None),
        ((answer(2, queue_offset=1), answer(1)), None),
        ((answer(1, code=1), answer(2)), "another code"),
        ((answer(1), answer(1, queue_offset=1)), "opaques came back that were not asked"),
        ((answer(1), answer(7, queue_offset=1)), "never sent"),
        ((answer(1), answer(2, queue_offset=2)), "not consecutive"),
        ((answer(1), answer(2, queue_offset=0)), "not consecutive"),
        ((b"\xff" * 8,), "cannot be true"),
    ],
)
def test_the_load_sees_wrong_answers_to_sends(answers: tuple[bytes, ...], complaint: str | None) -> None:
    with answering(*answers) as address:
        if complaint is None:
            assert load.drive(address, SENDS, connections=1, depth=2, requests=2).wrong == 0
        else:
            with pytest.raises(LoadError, match=complaint):
                load.drive(address, SENDS, connections=1, depth=2, requests=2)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (record(b"a") + record(b"b", queue_offset=1), None),
        (b"", "found nothing"),
        (record(b"a", crc=5), "another CRC"),
        (record(b"a") + record(b"b", queue_offset=2), "not consecutive"),
        (record(b"a")[:-1], "longer than the answer"),
        (record(b"a")[:20], "is cut"),
        (b"\0\0\0\x5e" + bytes(90), "another magic"),
    ],
)
def test_the_load_sees_wrong_records(body: bytes, complaint: str | None) -> None:
    pull = [frames.pull_frame(0, 0, 1)]
    with answering(answer(1, body=body)) as address:
        if complaint is None:
            assert load.drive(address, pull, connections=1, depth=1, requests=1).wrong == 0
        else:
            with pytest.raises(LoadError, match=complaint):
                load.drive(address, pull, connections=1, depth=1, requests=1)


def test_consumers_get_each_message_once_at_a_given_rate(tmp_path: object) -> None:
    with pytest.raises(LoadError, match="Connection refused"):
        flow.create_topic(("127.0.0.1", 1), OURS)
