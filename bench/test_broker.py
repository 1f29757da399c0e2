"""The throughput of a whole broker, one process on its own CPU: `pytest bench/test_broker.py`."""

from collections.abc import Callable, Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import flow, load, servers
from bench.frames import TOPIC
from bench.load import Load
from bench.servers import Server

QUEUE_MESSAGES = 2048


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = servers.firearrow(tmp_path_factory.mktemp("broker"))
    load.create_topic(made.address, TOPIC)
    load.fill(made.address, "scattered", QUEUE_MESSAGES, scattered=True)
    yield made
    made.stop()


def run(benchmark: BenchmarkFixture, messages: int, work: Callable[[int], Load]) -> None:
    """With `messages` messages, a hundredth if benchmarks are disabled; one operation is one message."""
    count = messages if benchmark.enabled else messages // 100
    benchmark.extra_info["operations"] = count
    done = benchmark.pedantic(work, (count,), rounds=3)  # type: ignore[no-untyped-call]
    benchmark.extra_info["messages_s"] = round(done.rate)
    assert done.messages >= count // 32 * 32


@pytest.mark.parametrize(
    ("body_bytes", "connections", "depth", "messages"),
    [(128, 64, 1, 100_000), (1024, 64, 1, 100_000), (128, 8, 32, 400_000), (1024, 8, 32, 400_000)],
)
def test_sends(
    benchmark: BenchmarkFixture, server: Server, body_bytes: int, connections: int, depth: int, messages: int
) -> None:
    def send(count: int) -> Load:
        return load.send(
            server.address, body_bytes=body_bytes, connections=connections, depth=depth, requests=count
        )

    run(benchmark, messages, send)


def test_batches(benchmark: BenchmarkFixture, server: Server) -> None:
    def send(count: int) -> Load:
        return load.batch(server.address, body_bytes=128, connections=8, depth=8, requests=count // 32)

    run(benchmark, 640_000, send)


def test_pulls(benchmark: BenchmarkFixture, server: Server) -> None:
    def pull(count: int) -> Load:
        return load.pull(
            server.address,
            topic="scattered",
            messages_each=QUEUE_MESSAGES,
            connections=8,
            depth=1,
            requests=count // 32,
        )

    run(benchmark, 640_000, pull)


@pytest.mark.parametrize("body_bytes", [128, 1024])
def test_end_to_end(benchmark: BenchmarkFixture, server: Server, body_bytes: int) -> None:
    def through(count: int) -> Load:
        return flow.end_to_end(server.address, body_bytes=body_bytes, producers=8, depth=8, messages=count)

    run(benchmark, 400_000, through)
