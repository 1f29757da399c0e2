"""The same states opened by Apache's broker. Each is opened twice: after our store has opened and closed it, and as
the power cut left it.

After us it must serve exactly what we serve. Alone it must serve what was synced; if it cannot, the reason is counted:
what it refuses to open, we opened.
"""

import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from firearrow._native.protocol.name_rules import RETRY_PREFIX, is_system_topic
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode
from tests.crash import folder
from tests.crash.cuts import Cut, drawn, image_of
from tests.crash.disk import Disk
from tests.crash.expected import ExpectedState, Queue, WrittenLog
from tests.crash.recording import Op
from tests.interop.peers import Apache, address
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, topic_ext

Bodies = dict[Queue, list[tuple[int, bytes]]]
"""Queue → (offset, body) of every message that can be pulled."""
QUEUES = 4
PULL_S = 30
OF_A_SLAVE = {"brokerRole", "brokerId", "namesrvAddr", "haMasterAddress"}
"""Settings of a recorded slave, whose master and name server have ended."""
REFUSALS = {
    r"length not matched message store config value": "refused a file that is too short",
    r"file name not match|not continuous": "refused a gap between files",
    r"BufferUnderflow|IndexOutOfBounds|IllegalArgument|NullPointer|ClassCast": "failed on what it read",
}
"""What its log contains when it does not start, and our name for that."""


@dataclass(slots=True)
class Compared:
    """`differences` are our faults; `alone` counts the results of Apache's broker with the raw states."""

    states: int = 0
    messages: int = 0
    by_workload: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    alone: dict[str, int] = field(default_factory=dict)


def compare(ops: list[Op], name: str, seed: int, count: int, scratch: Path, compared: Compared) -> None:
    """Open `count` states of a recorded run with both brokers."""
    written_log = WrittenLog.of(ops)
    for number, (call, cut, disk, expected) in enumerate(_sampled(ops, written_log, seed, count)):
        raw, ours = scratch / f"raw{number}", scratch / f"ours{number}"
        folder.make(raw, image_of(disk, cut))
        shutil.copytree(raw, ours)
        where = f"{name}, seed {seed}, call {call}, {cut.name}"
        wanted = _by_us(ours, written_log, clean=number % 2 == 0)
        for root, file in product((raw, ours), expected.saved):  # what a workload saves is no JSON
            for written in (root / file, root / f"{file}.bak"):
                written.unlink(missing_ok=True)
        try:
            found = by_apache(ours, written_log, sorted(wanted))
        except AssertionError as error:
            compared.differences.append(f"{where}: {_reason(error)}")
        else:
            compared.differences += [f"{where}: {text}" for text in _differences(found, wanted)]
        compared.states += 1
        compared.by_workload[name] = compared.by_workload.get(name, 0) + 1
        compared.messages += sum(map(len, wanted.values()))
        result = _alone(raw, written_log, expected, kill=cut.name == "kill")
        compared.alone[result] = compared.alone.get(result, 0) + 1
        for used in (raw, ours):
            shutil.rmtree(used)
            shutil.rmtree(used.with_name(f"{used.name}-apache"), ignore_errors=True)


def _sampled(
    ops: list[Op], written_log: WrittenLog, seed: int, count: int
) -> Iterator[tuple[int, Cut, Disk, ExpectedState]]:
    draw = random.Random(f"apache {seed}")
    calls = sorted(draw.sample(range(len(ops) // 4, len(ops)), count))
    disk, expected = Disk(), ExpectedState(written_log.options["segment_bytes"])
    for call, op in enumerate(ops):
        disk.apply(op)
        expected.apply(op)
        if call in calls:
            yield call, Cut("kill", True) if call == calls[0] else drawn(disk, draw), disk, expected


def _is_users(topic: str) -> bool:
    """Brokers write to the other topics themselves."""
    return not is_system_topic(topic) and not topic.startswith(RETRY_PREFIX)


def _by_us(root: Path, written_log: WrittenLog, *, clean: bool) -> Bodies:
    store = MessageStore.open(root, StoreConfig(**written_log.options))
    try:
        found: Bodies = {}
        for topic, queue_id in sorted(store.reader.queues()):
            if not _is_users(topic):
                continue
            at, end = store.reader.min_offset(topic, queue_id), store.reader.max_offset(topic, queue_id)
            found[topic, queue_id] = []
            while at < end:
                got = store.reader.get(topic, queue_id, at, 32)
                found[topic, queue_id] += [(record.queue_offset, record.body) for record in records(got.body)]
                at = got.next_offset
        return found
    finally:
        if clean:
            store.close()
        else:
            store.abandon()


def by_apache(root: Path, written_log: WrittenLog, queues: list[Queue]) -> Bodies:
    """AssertionError if it does not start or does not answer."""
    sizes = {
        "mappedFileSizeCommitLog": written_log.options["segment_bytes"],
        "mappedFileSizeConsumeQueue": written_log.options["queue_file_bytes"],
        "maxHashSlotNum": written_log.options["index_slots"],
        "maxIndexNum": written_log.options["index_entries"],
        "maxMessageSize": written_log.options["max_message_bytes"],
    }
    own = {name: value for name, value in written_log.settings.items() if name not in OF_A_SLAVE}
    settings = {name: str(size) for name, size in sizes.items()} | own
    with Apache(root, settings) as peer, ClientSocket(address(peer.address)) as connection:
        for topic in {topic for topic, _ in queues}:
            made = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, QUEUES))
            assert made.code == 0, made.remark
        return {queue: _pulled(connection, *queue) for queue in queues}


def _pulled(connection: ClientSocket, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    at, end = (
        int(connection.ask(code, {"topic": topic, "queueId": str(queue_id)}).ext["offset"])
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    )
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PULL_S
    while at < end:
        assert time.monotonic() < deadline, f"Apache is still at {at} of {end} in {topic} {queue_id}"
        answer = pull(connection, topic, at, queue_id)
        found += [(record.queue_offset, record.body) for record in records(answer.body)]
        at = int(answer.ext["nextBeginOffset"])
    return found


def _alone(raw: Path, written_log: WrittenLog, expected: ExpectedState, *, kill: bool) -> str:
    """What Apache's broker did with the state alone, in a word or two."""
    must = expected.written if kill else expected.synced
    kept = {
        queue: {record.entry for record in acknowledged}
        for queue, acknowledged in written_log.entries(expected.lowest_max, must).items()
        if _is_users(queue[0]) and queue[0] not in expected.forgotten
    }
    try:
        found = by_apache(raw, written_log, sorted(kept))
    except (AssertionError, KeyError) as error:
        return _reason(error)
    lost = sum(len(offsets - {offset for offset, _ in found[queue]}) for queue, offsets in kept.items())
    return "lost what was acknowledged" if lost else "served what was acknowledged"


def _reason(error: Exception) -> str:
    for pattern, reason in REFUSALS.items():
        if re.search(pattern, str(error)):
            return reason
    return f"did not start, or did not answer: {str(error)[-300:]}"


def _differences(found: Bodies, wanted: Bodies) -> Iterator[str]:
    """Messages after the expected ones may be there: Apache delivered them itself."""
    for queue, messages in wanted.items():
        if found[queue][: len(messages)] != messages:
            yield (
                f"of {queue} Apache serves {len(found[queue])} messages "
                f"({[offset for offset, _ in found[queue]][:3]}...), we serve {len(messages)}"
            )
