"""Whatever clients send and pull, each fast path answers and stores the same, byte for byte, as the complete one."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.fastpath.random_pulls import heartbeat, pulling
from tests.fastpath.random_sends import TOPICS, mutated, sending
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.examples import part_of, seeds
from tests.support.requests import pull_ext, topic_ext

ROUNDS, FRAMES = 12, 150
COUNTED = (
    "msgPutTotalTodayNow",
    "msgGetTotalTodayNow",
    "putMessageTimesTotal",
    "putMessageSizeTotal",
    "putMessageFailedTimes",
)
BARRIER = 28
"""A question."""


class Three:
    """A broker for each path; all get the same frames. Each may hold one pull: others are answered at once."""

    def __init__(self, folder: Path, *options: str) -> None:
        settings = [word for option in options for word in ("--set", option)]
        self.brokers = [
            BrokerProcess(folder / name, *settings, "--set", "maxHeldPulls=1", way=way)
            for name, way in WAYS.items()
        ]
        for broker in self.brokers:
            with broker.connect() as connection:
                for topic, queues in TOPICS:
                    ext = topic_ext(topic, queues) | {"order": str(topic == "Ordered").lower()}
                    assert connection.ask(17, ext).code == 0
                assert connection.ask(17, topic_ext("Quiet", 1)).code == 0
        self.waiting = [broker.connect() for broker in self.brokers]
        for connection in self.waiting:
            connection.send_request(11, pull_ext("Quiet", sysFlag="6", suspendTimeoutMillis="600000"))
            connection.ask(BARRIER)

    def said(self, frames: list[bytes], chunk: int) -> list[dict[int, bytes]]:
        """The responses of each, by opaque; the complete path is first."""
        return [self._said(broker, frames, chunk) for broker in self.brokers]

    def _said(self, broker: BrokerProcess, frames: list[bytes], chunk: int) -> dict[int, bytes]:
        answers: dict[int, bytes] = {}
        sent = 0
        while sent < len(frames):
            with broker.connect() as connection:
                sent = self._play(connection, frames, sent, chunk, answers, broker.address[1])
        return answers

    def _play(
        self,
        connection: ClientSocket,
        frames: list[bytes],
        sent: int,
        chunk: int,
        answers: dict[int, bytes],
        port: int,
    ) -> int:
        """Continue from `sent`; where a frame closes the connection, continue after it."""
        while sent < len(frames):
            connection.send_raw(b"".join(frames[sent : sent + chunk]))
            try:
                for barrier in (
                    -2 * sent - 1,
                    -2 * sent - 2,
                ):  # delayed responses come after the first barrier
                    connection.send_raw(RemotingCommand(BARRIER, opaque=barrier).encode())
                    while (answer := connection.receive()).opaque != barrier:
                        answers[answer.opaque] = comparable(answer, port)
            except ConnectionError:
                if chunk > 1:
                    raise
                answers[-1_000_000 - sent] = b"closed"
                return sent + 1
            sent += chunk
        return sent

    def stop(self) -> None:
        for connection in self.waiting:
            connection.close()
        for broker in self.brokers:
            assert broker.stop() == 0
            assert "Traceback" not in broker.log.read_text()

    def records(self) -> list[list[tuple[object, ...]]]:
        found = []
        for broker in self.brokers:
            with CommitLog.open_readonly(broker.store / "commitlog") as log:
                found.append([shown(record, broker.address[1]) for record in log.records()])
        return found


def comparable(answer: RemotingCommand, port: int) -> bytes:
    """All of it; records without times and ports."""
    records, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        records.append(shown(decode(answer.body[at : at + size]), port))
        at += size
    answer.body = repr(records).encode()
    return general(answer.encode(), port)


def general(data: bytes, port: int) -> bytes:
    """Without ports of this run, and without ids that the broker generated."""
    data = re.sub(rb"((?:Producer: |consumer:\[)127.0.0.1):\d+", rb"\1", data)
    data = data.replace(b"7F000001%08X" % port, b"HERE")
    return re.sub(rb"7F000001[0-9A-F]{24}", b"MADE", data)


def shown(record: Record, port: int) -> tuple[object, ...]:
    """What must be the same: everything except times and ports of this run."""
    return (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.body,
        record.body_crc,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host[:4],
        record.store_host[:4],
        record.reconsume_times,
        record.prepared_offset,
        general(record.properties_bytes, port),
    )


def without_sweeps(table: dict[str, object]) -> dict[str, object]:
    """Offsets that are committed every few seconds by the clock may differ."""
    return {key: queues for key, queues in table.items() if not key.endswith("@broadcast")}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    made = Three(tmp_path_factory.mktemp("same"))
    yield made
    for broker in made.brokers:
        broker.kill()


@pytest.mark.parametrize("seed", seeds(ROUNDS))
def test_random_sends_are_answered_the_same(three: Three, seed: int) -> None:
    rng = random.Random(seed)
    frames = [sending(rng, seed * FRAMES + n + 1) for n in range(FRAMES)]
    complete, *short = three.said(frames, rng.choice((1, 7, 50)))
    assert short == [complete] * 2
    assert sum(b'"code":0' in answer for answer in complete.values()) > FRAMES // 10


@pytest.mark.parametrize("seed", seeds(ROUNDS))
def test_mutated_sends_are_answered_the_same(three: Three, seed: int) -> None:
    rng = random.Random(1000 + seed)
    frames = [mutated(rng, sending(rng, seed * FRAMES + n + 1)) for n in range(FRAMES)]
    complete, *short = three.said(frames, 1)
    assert short == [complete] * 2


@pytest.mark.parametrize("seed", seeds(ROUNDS))
def test_random_pulls_are_answered_the_same(three: Three, seed: int) -> None:
    """Of what the tests before this one sent. A heartbeat makes one group known."""
    rng = random.Random(2000 + seed)
    frames = [heartbeat(1)] + [pulling(rng, n + 2) for n in range(FRAMES)]
    complete, *short = three.said(frames, rng.choice((1, 7, 50)))
    assert short == [complete] * 2
    assert sum(b"FOUND" in answer for answer in complete.values()) > FRAMES // 10


@pytest.mark.parametrize("seed", seeds(ROUNDS))
def test_mutated_pulls_are_answered_the_same(three: Three, seed: int) -> None:
    rng = random.Random(3000 + seed)
    frames = [heartbeat(1)] + [mutated(rng, pulling(rng, n + 2)) for n in range(FRAMES)]
    complete, *short = three.said(frames, 1)
    assert short == [complete] * 2


def test_what_was_counted_and_committed_is_the_same(three: Three) -> None:
    """Of all requests of the tests before this one."""
    counted, committed = [], []
    for broker in three.brokers:
        with broker.connect() as connection:
            info = json.loads(connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
            counted.append({key: info[key] for key in COUNTED})
            answer = connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
            offsets = json.loads(re.sub(rb"([{,])(-?\d+):", rb'\1"\2":', answer.body))
            committed.append([without_sweeps(offsets[name]) for name in ("offsetTable", "pullOffsetTable")])
    assert counted[1:] == counted[:1] * 2
    assert committed[1:] == committed[:1] * 2
    assert int(counted[0]["msgGetTotalTodayNow"]) > 0


def test_what_was_stored_is_the_same(three: Three) -> None:
    """Of all that the tests before this one sent."""
    three.stop()
    complete, *short = three.records()
    assert len(complete) > part_of(ROUNDS) * FRAMES // 4
    assert short == [complete] * 2
