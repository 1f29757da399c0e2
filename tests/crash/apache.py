"""The same states in Apache's hands: what our store makes of them must be all the same to Apache's broker.

Each state is opened twice by it: after our store has opened and left it (it must serve just what we do), and as the
power cut left it (what it loses then is its own doing, and is only told).
"""

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow._native.wire.codes import RequestCode
from tests.crash import folder
from tests.crash.claims import Claims, Queue, Truth
from tests.crash.cuts import Cut, drawn, image_of
from tests.crash.disk import Disk
from tests.crash.recording import Op
from tests.interop.peers import Apache, address
from tests.process.connection import Connection
from tests.process.requests import pull, records, topic_ext

Bodies = dict[Queue, list[tuple[int, bytes]]]
"""Queue → (offset, body) of every message that can be pulled."""
QUEUES = 4


@dataclass(slots=True)
class Compared:
    """`differences` are faults of ours; `alone` tells what Apache made of the raw states."""

    states: int = 0
    messages: int = 0
    differences: list[str] = field(default_factory=list)
    alone: dict[str, int] = field(default_factory=dict)


def compare(ops: list[Op], name: str, seed: int, count: int, room: Path) -> Compared:
    """Give `count` states of a recorded run to both brokers."""
    truth = Truth.of(ops)
    compared = Compared()
    for number, (call, cut, disk, claims) in enumerate(_sampled(ops, truth, seed, count)):
        raw, ours = room / f"raw{number}", room / f"ours{number}"
        folder.make(raw, image_of(disk, cut))
        shutil.copytree(raw, ours)
        wanted = _by_us(ours, truth, clean=number % 2 == 0)
        found = by_apache(ours, truth)
        compared.states += 1
        compared.messages += sum(map(len, wanted.values()))
        if found != wanted:
            compared.differences.append(
                f"{name}, seed {seed}, call {call}, {cut.name}: {_differ(found, wanted)}"
            )
        told = _alone(raw, truth, claims, kill=cut.name == "kill")
        compared.alone[told] = compared.alone.get(told, 0) + 1
        for used in (raw, ours):
            shutil.rmtree(used)
            shutil.rmtree(used.with_name(f"{used.name}-apache"), ignore_errors=True)
    return compared


def _sampled(ops: list[Op], truth: Truth, seed: int, count: int) -> Iterator[tuple[int, Cut, Disk, Claims]]:
    draw = random.Random(f"apache {seed}")
    calls = sorted(draw.sample(range(len(ops) // 4, len(ops)), count))
    disk, claims = Disk(), Claims(truth.options["segment_bytes"])
    for call, op in enumerate(ops):
        disk.apply(op)
        claims.apply(op)
        if call in calls:
            yield call, Cut("kill", True) if call == calls[0] else drawn(disk, draw), disk, claims


def _by_us(root: Path, truth: Truth, *, clean: bool) -> Bodies:
    store = MessageStore.open(root, **truth.options)
    try:
        found: Bodies = {}
        for topic, queue_id in sorted(truth.queues):
            at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            found[topic, queue_id] = []
            while at < end:
                got = store.get(topic, queue_id, at, 32)
                found[topic, queue_id] += [(record.queue_offset, record.body) for record in records(got.body)]
                at = got.next_offset
        return found
    finally:
        if clean:
            store.close()
        else:
            store.abandon()


def by_apache(root: Path, truth: Truth) -> Bodies:
    """AssertionError when it does not start."""
    sizes = {
        "mappedFileSizeCommitLog": truth.options["segment_bytes"],
        "mappedFileSizeConsumeQueue": truth.options["queue_file_bytes"],
        "maxHashSlotNum": truth.options["index_slots"],
        "maxIndexNum": truth.options["index_entries"],
        "maxMessageSize": truth.options["max_message_bytes"],
    }
    with (
        Apache(root, {name: str(size) for name, size in sizes.items()}) as peer,
        Connection(address(peer.address)) as connection,
    ):
        for topic in {topic for topic, _ in truth.queues}:
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, QUEUES)).code == 0
        return {
            (topic, queue_id): _pulled(connection, topic, queue_id)
            for topic, queue_id in sorted(truth.queues)
        }


def _pulled(connection: Connection, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    at, end = (
        int(connection.ask(code, {"topic": topic, "queueId": str(queue_id)}).ext["offset"])
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    )
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 30
    while at < end:
        assert time.monotonic() < deadline, f"Apache goes on at {at} of {end} in {topic} {queue_id}"
        answer = pull(connection, topic, at, queue_id)
        found += [(record.queue_offset, record.body) for record in records(answer.body)]
        at = int(answer.ext["nextBeginOffset"])
    return found


def _alone(raw: Path, truth: Truth, claims: Claims, *, kill: bool) -> str:
    """What Apache's broker made of the state by itself, in a word or two."""
    try:
        found = by_apache(raw, truth)
    except (AssertionError, KeyError):
        return "did not start, or did not answer"
    must = claims.written if kill else claims.synced
    for queue, acknowledged in truth.entries(claims.lowest_max, must).items():
        if queue[0] not in claims.forgotten:
            offsets = {offset for offset, _ in found[queue]}
            if not {record.entry for record in acknowledged} <= offsets:
                return "lost what was acknowledged"
    return "served what was acknowledged"


def _differ(found: Bodies, wanted: Bodies) -> str:
    for queue, messages in wanted.items():
        if found[queue] != messages:
            return (
                f"of {queue} Apache serves {len(found[queue])} messages "
                f"({[offset for offset, _ in found[queue]][:3]}...), we serve {len(messages)}"
            )
    return "nothing differs"
