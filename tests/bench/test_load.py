"""A tiny run of the benchmarks: rows of each kind (with --long all) run, and the load generator detects errors."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import backing, compare, flow, frames, load, measuring, results, rows
from bench.load import LoadError
from bench.measuring import measured
from bench.pace import Pace
from bench.ports import free_port
from bench.processes import TICK_S, cpu_s
from bench.programs import ROOT
from bench.rows import Row, Sample, figures, server_of
from bench.servers import Server
from tests.fastpath.fake_broker import FakeBroker, Lie, answer, record
from tests.support.eventually import eventually

FIRST = frames.OPAQUE_BASE + 1
PART = 0.01
"""Of a sample. A whole one waits for an idle machine, which a test does not get."""
OF_EACH_KIND = (
    "SYNC_FLUSH 8 x 32",
    "pull 32 x 1 KiB, cont",
    "end to end flat out, 128 B",
    "1,000 topics",
    "hot features",
    "send 64 x 1, 128 B, TLS",
    "send 8 x 32, 128 B, users, stateless",
    "send 8 x 32, 128 B, SYNC_MASTER",
)
SENDS = [frames.send_frame(0, bytes(16), n + 1) for n in range(2)]


@pytest.fixture(autouse=True)
def tools() -> None:
    if missing := [tool for tool in ("cc", "taskset") if shutil.which(tool) is None]:
        pytest.skip(f"the bench needs {missing}")


@pytest.mark.parametrize("starts", [OF_EACH_KIND, pytest.param(("",), marks=pytest.mark.long, id="all")])
def test_a_row_gives_figures_and_goals(monkeypatch: pytest.MonkeyPatch, starts: tuple[str, ...]) -> None:
    monkeypatch.setattr(measuring, "TRIES_MAX", 1)  # workers beside this one disturb each sample
    row_results = compare.main(
        ["--part", "0.002", "--rounds", "1", "--without", "apache", "redis", "--no-record", "--rows", *starts]
    )
    wanted = [row for row in compare.rows() if row.name.startswith(starts)]
    assert [row.row for row in row_results] == [row.name for row in wanted]
    for row, made in zip(row_results, wanted, strict=True):
        ran = {name for name in made.work if not server_of(name).startswith(("apache", "redis"))}
        assert set(row.figures) == ran
        assert row.ours in ran
        assert all(of["rate"] > 0 and of["max"] >= of["p50"] > 0 for of in row.figures.values())
        assert row.goals


def test_micro_benchmarks_and_whole_broker_runs_hold_what_they_assert() -> None:
    """In a separate process: their conftest is not that of the tests."""
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", "-p", "no:cacheprovider"]
    command += ["bench/test_structures.py", "bench/test_path_send.py", "bench/test_broker.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_peer_that_fails_is_left_out_and_we_are_not() -> None:
    def work(server: Server, part: float) -> load.Load:
        raise LoadError("refused")

    def done(server: Server, part: float) -> load.Load:
        return load.Load(8, 1.0, 8, 0, 1, 2, 3, 4)

    peers = {name: Server(name, ("127.0.0.1", 1), 0) for name in ("firearrow", "apache")}
    row = Row("r", "firearrow", {"firearrow": done, "apache": work}, (rows.of("apache", 1),))
    found, warm_up_s = measured(peers, row, 2, PART)
    assert found["firearrow"].rate == 8
    assert list(found) == ["firearrow"]
    assert list(warm_up_s) == ["firearrow"]
    assert results.row_result(row, found).goals == ()
    with pytest.raises(LoadError, match="refused"):
        measured(
            peers,
            Row("r", "firearrow", {"firearrow": work, "apache": done}, ()),
            1,
            PART,
        )


@pytest.mark.parametrize(
    ("after", "ticks"),
    [
        pytest.param({1: [10, 5, 0, 0], 2: [30, 0, 0, 0]}, 5 + 20, id="all live"),
        pytest.param({1: [10, 0, 40, 2], 3: [1, 2, 0, 0]}, 42 - 10 + 3, id="one ended and was waited for"),
        pytest.param({1: [17, 0, 0, 0]}, 7, id="one ended and was not waited for"),
    ],
)
def test_cpu_time_of_a_family(after: dict[int, list[int]], ticks: int) -> None:
    before = {1: [10, 0, 0, 0], 2: [10, 0, 0, 0]}
    assert cpu_s(before, after) == pytest.approx(ticks * TICK_S)


@pytest.mark.parametrize("may_lock", [True, False])
def test_files_to_be_read_are_in_the_cache(
    tmp_path: Path, may_lock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not may_lock:
        monkeypatch.setattr(backing.LIBC, "mlock", lambda *_: -1)
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(bytes(3 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with backing.kept(tmp_path):
            for place in range(0, 3 << 20, 1 << 20):
                assert os.preadv(file.fileno(), [bytearray(16)], place, os.RWF_NOWAIT) == 16


def test_a_cpu_is_slower_than_its_best() -> None:
    cpus, pace = os.sched_getaffinity(0), Pace()
    assert pace.lag() == 0
    assert all(pace.lag() >= 0 for _ in range(3))
    assert os.sched_getaffinity(0) == cpus


def test_a_floor_keeps_its_newest_file_alone(tmp_path: Path) -> None:
    server = Server("floor", ("127.0.0.1", 1), 0, left=tmp_path / "floor.data")
    names = ["floor.data", "floor.data.entries", *(f"floor.data.{n}" for n in (9, 10, 2))]
    for at, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    server.tidy()
    assert {path.name for path in tmp_path.iterdir()} == {"floor.data", "floor.data.entries", "floor.data.2"}
    Server("firearrow", ("127.0.0.1", 1), 0).tidy()


def test_a_reserve_is_handed_out_as_memory_is_taken() -> None:
    reserve = backing.Reserve(4 * backing.RELEASED_BYTES)
    with closing(reserve):
        with reserve:
            eventually(lambda: not reserve.left)
        assert not reserve.left
        reserve.fill()
        assert reserve.left == 4 * backing.RELEASED_BYTES


def test_a_refused_connection_is_an_error() -> None:
    with pytest.raises(LoadError, match="Connection refused"):
        load.drive(("127.0.0.1", free_port()), SENDS, load.Workload(1, 1, 1))


@contextmanager
def answering(*frames_back: bytes) -> Iterator[tuple[str, int]]:
    """A server that answers any request on its first connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"".join(frames_back))
                while peer.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(10)


def test_answers_in_another_order_are_right() -> None:
    with answering(answer(FIRST + 1, queue_offset=1), answer(FIRST)) as address:
        assert load.drive(address, SENDS, load.Workload(1, 2, 2)).wrong == 0


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        pytest.param((answer(FIRST, code=1), answer(FIRST + 1)), "another code", id="code"),
        pytest.param(
            (answer(FIRST), answer(FIRST, queue_offset=1)), "not those that were sent", id="opaque twice"
        ),
        pytest.param((answer(FIRST), answer(FIRST + 6, queue_offset=1)), "never sent", id="opaque"),
        pytest.param((answer(FIRST), answer(FIRST + 1, queue_offset=2)), "not consecutive", id="gap"),
        pytest.param(
            (answer(FIRST), answer(FIRST + 1, queue_offset=0)), "not consecutive", id="offset twice"
        ),
        pytest.param((b"\xff" * 8,), "invalid lengths", id="lengths"),
    ],
)
def test_the_load_sees_wrong_answers_to_sends(answers: tuple[bytes, ...], complaint: str) -> None:
    with answering(*answers) as address, pytest.raises(LoadError, match=complaint):
        load.drive(address, SENDS, load.Workload(1, 2, 2))


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "found nothing", id="empty"),
        pytest.param(record(b"a", crc=5), "CRC of a body is wrong", id="crc"),
        pytest.param(record(b"a") + record(b"b", queue_offset=2), "not consecutive", id="gap"),
        pytest.param(record(b"a")[:-1], "longer than the response", id="short"),
        pytest.param(record(b"a")[:20], "is incomplete", id="cut"),
        pytest.param(struct.pack(">i", 94) + bytes(90), "wrong magic", id="magic"),
    ],
)
def test_the_load_sees_wrong_records(body: bytes, complaint: str) -> None:
    pull = [frames.pull_frame(0, 0, 1)]
    with answering(answer(FIRST, body=body)) as address, pytest.raises(LoadError, match=complaint):
        load.drive(address, pull, load.Workload(1, 1, 1))


def flowing(lie: Lie) -> load.Load:
    with FakeBroker(lie) as broker:
        return flow.end_to_end(
            broker.address, body_bytes=16, producers=2, depth=2, messages=64, rate=2000, skip=4
        )


def test_what_comes_once_and_whole_is_counted() -> None:
    done = flowing(lambda records: records)
    assert done.requests == 64
    assert 0 < done.p50 <= done.max


class Again:
    """Every message has the body of the first one."""

    first: bytes | None = None

    def __call__(self, records: list[bytes]) -> list[bytes]:
        first = self.first = self.first or records[0]
        return [first[:20] + each[20:28] + first[28:] for each in records]


@pytest.mark.parametrize(
    ("lie", "complaint"),
    [
        pytest.param(lambda records: records[1:], "arrived instead of|does not follow", id="lost"),
        pytest.param(lambda records: [*records, records[-1]], "arrived instead of", id="twice"),
        pytest.param(
            lambda records: [each[:-20] + bytes(20) for each in records], "CRC of a body is wrong", id="torn"
        ),
        pytest.param(Again(), "arrived twice", id="body twice"),
    ],
)
def test_consumers_see_what_is_wrong(lie: Lie, complaint: str) -> None:
    with pytest.raises(LoadError, match=complaint):
        flowing(lie)


@pytest.mark.parametrize(
    ("windows", "needed"),
    [
        ([50, 80, 96, 99, 100, 98, 97], 5),
        ([100, 100, 100], 3),
        ([50, 100, 80, 99, 80, 99, 80, 99, 80, 99], 8),  # noise: no longer rises
    ],
)
def test_a_server_is_warm_when_its_rate_is_steady(windows: list[int], needed: int) -> None:
    rates = iter(windows)
    row = Row("a row", "peer", {"peer": lambda server, part: SimpleNamespace(rate=next(rates))}, ())  # type: ignore[dict-item,return-value]
    server = SimpleNamespace(tidy=lambda: None, awake=lambda seconds: nullcontext())
    assert measuring.warmed_up(row, "peer", server, 1) < measuring.WARM_UP_S  # type: ignore[arg-type]
    assert len(windows) - len(list(rates)) == needed


def test_the_best_round_of_a_server_counts() -> None:
    slow, quick = Sample(10, 1, 2, 3, 4, 50, 6, resets=1), Sample(20, 2, 3, 4, 5, 40, 5, resets=2)
    assert figures([slow, quick]) == Sample(20, 2, 3, 4, 5, 50, 6, resets=3)
