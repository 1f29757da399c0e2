"""Attacks that exhaust memory with valid requests: huge counts, floods of names, many held requests.

Run by `attacker`. Each sends as much as its seconds allow and reads no more than necessary.
"""

import itertools
import json
import struct
import time
import zlib
from collections.abc import Iterable

from firearrow._native.wire.codes import RequestCode
from tests.hostile.attack_sockets import Address, AttackSockets
from tests.hostile.attacks import Attack, Field, request
from tests.support.requests import pull_ext, send_ext, topic_ext

SUSPEND = 2 | 4
PIECE_BYTES = 1 << 20


def flood(
    field: Field, frames: Iterable[bytes], connections: int = 4, to: Address | None = None
) -> AttackSockets:
    """Send the frames, one after another on one of the connections, and discard responses, until time is up."""
    sockets = AttackSockets(field.tls)
    sockets.join(to or field.broker, connections)
    until = time.monotonic() + field.seconds
    turns = itertools.cycle(range(connections))
    pending: list[bytes] = []
    size = 0
    for frame in frames:
        pending.append(frame)
        size += len(frame)
        if size >= PIECE_BYTES:
            each = sockets.members[next(turns) % len(sockets.members)] if sockets.members else None
            if each is None or time.monotonic() > until:
                return sockets
            sockets.send_one(each, b"".join(pending), until)
            pending, size = [], 0
    sockets.send_one(sockets.members[0], b"".join(pending), until)
    return sockets


def unknown_topics(field: Field) -> AttackSockets:
    """Sends and pulls to unknown topics, each a different one."""
    return flood(
        field,
        (request(RequestCode.SEND_MESSAGE_V2, send_ext(f"Unknown{n}"), b"x") for n in itertools.count()),
    )


def unknown_groups(field: Field) -> AttackSockets:
    """Pulls, commits and heartbeats of unknown groups."""

    def frames() -> Iterable[bytes]:
        for n in itertools.count():
            group = f"Group{n}"
            yield request(RequestCode.PULL_MESSAGE, pull_ext("Background", 1 << 40, consumerGroup=group))
            commit = {"consumerGroup": group, "topic": "Background", "queueId": "1", "commitOffset": "7"}
            yield request(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            yield request(RequestCode.HEART_BEAT, body=beat(f"c{n}", [group], 1))

    return flood(field, frames())


def beat(client: str, groups: list[str], subscriptions: int, expression: str = "*") -> bytes:
    topics = [
        {"topic": f"T{n}", "subString": expression, "subVersion": 1, "tagsSet": [], "codeSet": []}
        for n in range(subscriptions)
    ]
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": topics,
        }
        for group in groups
    ]
    producers = [{"groupName": group} for group in groups]
    return json.dumps(
        {"clientID": client, "consumerDataSet": consumers, "producerDataSet": producers}
    ).encode()


def huge_heartbeats(field: Field) -> AttackSockets:
    """Heartbeats of 4 MiB: a million subscriptions, thousands of groups, huge expressions; continuously."""
    bodies = (
        beat("subscriptions", ["Greedy"], 30_000),
        beat("groups", [f"Greedy{n}" for n in range(9_000)], 1),
        beat("expressions", ["GreedyText"], 60, "x" * 65_000),
        beat("both", [f"GreedyBoth{n}" for n in range(500)], 60),
    )
    frames = [request(RequestCode.HEART_BEAT, body=body) for body in bodies]
    return flood(field, itertools.cycle(frames), connections=8)


def one_group(field: Field) -> AttackSockets:
    """All connections join one group repeatedly, and none reads its notifications."""
    sockets = field.open_sockets(receive_bytes=4096)
    until = time.monotonic() + field.seconds
    for n, each in enumerate(sockets):
        if time.monotonic() > until:
            break
        sockets.send_one(each, request(RequestCode.HEART_BEAT, body=beat(f"m{n}", ["OneGroup"], 1)), until)
    return sockets


def huge_queues(field: Field) -> AttackSockets:
    """Topics with millions of queues, locks and commits of all of them, offsets of queues that do not exist."""

    def frames() -> Iterable[bytes]:
        yield request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Millions", 2**31 - 1))
        queues = [{"topic": "Background", "brokerName": "b", "queueId": n} for n in range(50_000)]
        for n in itertools.count():
            yield request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(f"Wide{n % 50}", 4096))
            locks = {"consumerGroup": f"L{n}", "clientId": "c", "mqSet": queues[: 9_000 + n % 2000]}
            yield request(RequestCode.LOCK_BATCH_MQ, body=json.dumps(locks).encode())
            for queue_id in range(0, 70_000, 700):
                commit = {"consumerGroup": f"Q{n}", "topic": "Background", "queueId": str(queue_id)}
                yield request(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "1"})
            yield request(RequestCode.SEND_MESSAGE_V2, send_ext(f"Wide{n % 50}", n % 5000), b"x")

    return flood(field, frames())


def huge_counts(field: Field) -> AttackSockets:
    """Headers and bodies that declare larger counts than any process can hold."""
    most = struct.pack(">i", 2**31 - 1)
    binary = struct.pack(">hBhii", 310, 0, 1, 5, 0)

    def framed(header: bytes, body: bytes = b"") -> bytes:
        return struct.pack(">iI", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body

    fields = b"".join(b"\x00\x01a" + struct.pack(">i", 1) + b"1" for _ in range(5000))
    bad = (
        framed(binary + most),
        framed(binary + bytes(4) + most),
        framed(binary + bytes(4) + struct.pack(">i", 7) + b"\x7f\xff" + b"a" * 5),
        framed(binary + bytes(4) + struct.pack(">i", len(fields)) + fields),
        request(RequestCode.SEND_BATCH_MESSAGE, send_ext("Counts", m="true"), most + bytes(100)),
        request(RequestCode.SEND_MESSAGE_V2, send_ext("Counts", i="k\x01v\x02" * 8000), b"x"),
        request(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[' + b"{}," * 100_000 + b"{}]}"),
        request(
            RequestCode.QUERY_MESSAGE,
            {
                "topic": "Background",
                "key": "k",
                "maxNum": "2147483647",
                "beginTimestamp": "0",
                "endTimestamp": "9223372036854775807",
            },
        ),
        request(
            RequestCode.POP_MESSAGE,
            {
                "consumerGroup": "g",
                "topic": "Background",
                "queueId": "-1",
                "maxMsgNums": "2147483647",
                "invisibleTime": "60000",
                "pollTime": "1",
                "bornTime": "1",
                "initMode": "0",
            },
        ),
        request(RequestCode.HEART_BEAT, body=b"[" * 1_000_000),
        request(RequestCode.HEART_BEAT, body=b'{"a":' * 500_000),
        request(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            body=b'{"topicConfigList":[' + b"{}," * 500_000 + b"{}]}",
        ),
    )
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        for frame in bad:
            sockets = field.open_sockets(10)
            sockets.send(frame, within_s=2.0)
            sockets.close()
    return AttackSockets()


def held_pulls(field: Field) -> AttackSockets:
    """Pulls that are held, with everything a pull may carry: long expressions, and a body that is not needed."""
    long = "||".join(f"tag{n:05d}" for n in range(5000))
    bodies = (b"", bytes(1 << 20))

    def frames() -> Iterable[bytes]:
        for n in itertools.count():
            ext = pull_ext("Background", 0, 3, sysFlag=str(SUSPEND), suspendTimeoutMillis="600000")
            subscription = long if n % 2 else "never"
            ext |= {"subscription": subscription + str(n), "consumerGroup": f"H{n % 100}"}
            yield request(RequestCode.PULL_MESSAGE, ext, bodies[n % 3 == 0])

    return flood(field, frames(), connections=8)


def registrations(field: Field) -> AttackSockets:
    """Fake brokers, with as many topics as a registration may contain; keys and values without end."""
    table = {
        f"Fake{n}": {"topicName": f"Fake{n}", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}
        for n in range(20_000)
    }

    def frames() -> Iterable[bytes]:
        for n in itertools.count():
            version = {"counter": n + 1, "timestamp": n, "stateVersion": 0}
            own = {f"{key}-{n}": config | {"topicName": f"{key}-{n}"} for key, config in table.items()}
            wrapper = {"topicConfigSerializeWrapper": {"topicConfigTable": own, "dataVersion": version}}
            body = json.dumps(wrapper | {"filterServerList": []}).encode()
            ext = {
                "brokerName": f"fake{n}",
                "brokerAddr": f"127.0.0.1:{n % 60000 + 1}",
                "clusterName": "Fake",
                "haServerAddr": "h:1",
                "brokerId": "0",
                "compressed": "false",
                "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            }
            yield request(RequestCode.REGISTER_BROKER, ext, body)
            kv = {"namespace": f"N{n}", "key": f"k{n}", "value": "v" * 60_000}
            yield request(RequestCode.PUT_KV_CONFIG, kv)

    return flood(field, frames(), to=field.name_server)


def same_opaque(field: Field) -> AttackSockets:
    """All requests with one opaque, and responses to requests that were made and to others that were not."""
    send = request(RequestCode.SEND_MESSAGE_V2, send_ext("Opaque"), b"x", opaque=1)
    held = request(
        RequestCode.PULL_MESSAGE,
        pull_ext("Opaque", 1 << 40, sysFlag=str(SUSPEND), suspendTimeoutMillis="20000"),
        opaque=1,
    )
    answers = b"".join(request(0, {}, b"x" * 50, opaque=n, flag=1) for n in range(1, 200))
    return flood(field, itertools.cycle((send * 50, held * 20, answers)))


def pops(field: Field) -> AttackSockets:
    """Pops of unknown groups, waiting and not, and acknowledgements of messages that were never popped."""

    def frames() -> Iterable[bytes]:
        for n in itertools.count():
            ext = {
                "consumerGroup": f"P{n % 20_000}",
                "topic": "Background",
                "queueId": "-1",
                "maxMsgNums": "1",
                "invisibleTime": "10000",
                "pollTime": "60000" if n % 2 else "0",
                "initMode": "1",
                "order": "false",
                "bornTime": str(time.time_ns() // 1_000_000),
                "expType": "TAG",
                "exp": f"never{n}",
            }
            yield request(RequestCode.POP_MESSAGE, ext, bytes(10_000))
            ack = {
                "consumerGroup": "P",
                "topic": "Background",
                "queueId": "0",
                "offset": str(n),
                "extraInfo": f"{n} 1 60000 0 0 b 0 {n}",
            }
            yield request(RequestCode.ACK_MESSAGE, ack)

    return flood(field, frames())


EXHAUSTION: dict[str, Attack] = {
    each.__name__: each
    for each in (
        unknown_topics,
        unknown_groups,
        huge_heartbeats,
        one_group,
        huge_queues,
        huge_counts,
        held_pulls,
        registrations,
        same_opaque,
        pops,
    )
}
