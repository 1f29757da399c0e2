"""Encodes requests for loads, for RocketMQ's protocol and redis. The n-th of a list, from 1, has the opaque
OPAQUE_BASE + n."""

import json
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign

TOPIC = "bench"
OPAQUE_BASE = 2_000_000_000
"""As native/requests.h has it: ten digits, as the numbers of a client that runs for a day."""
QUEUES = 4
BATCH = 32
PULLED = 32
DISTINCT = 1024
"""The requests of a load before they repeat; their keys and queues differ."""
TOPICS_MAX = 1000
"""How many topics one request creates."""


class Login(NamedTuple):
    username: str
    password: str


ADMIN, PRODUCER = Login("admin", "12345678"), Login("producer", "12345678")


def size(body_bytes: int) -> str:
    """A size as in the names of rows."""
    return f"{body_bytes // 1024} KiB" if body_bytes % 1024 == 0 else f"{body_bytes} B"


def topic_frame(topic: str = TOPIC, queues: int = QUEUES) -> bytes:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).encode()


def properties(number: int) -> str:
    return f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def send_frame(
    queue_id: int,
    body: bytes,
    number: int,
    *,
    topic: str = TOPIC,
    text: str | None = None,
    group: str = "bench-producer",
) -> bytes:
    """`text`: other properties than `properties(number)`."""
    own = properties(number) if text is None else text
    ext = {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": own,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, body, opaque=OPAQUE_BASE + number).encode()


def batch_frame(queue_id: int, body: bytes, number: int, *, topic: str = TOPIC, items: int = BATCH) -> bytes:
    whole = b""
    for item in range(items):
        text = properties(number * items + item).encode()
        head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
        whole += head + body + struct.pack(">h", len(text)) + text
    return batch_request(queue_id, whole, number, topic=topic)


def batch_request(queue_id: int, items: bytes, number: int, *, topic: str) -> bytes:
    """`items`: as the body of a batch contains them."""
    ext = {
        "a": "bench-producer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext, items, opaque=OPAQUE_BASE + number).encode()


def pull_frame(queue_id: int, queue_offset: int, number: int, *, topic: str = TOPIC) -> bytes:
    ext = {
        "consumerGroup": "bench-consumer",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(PULLED),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=OPAQUE_BASE + number).encode()


def signed(frame: bytes, login: Login) -> bytes:
    request = RemotingCommand.decode(frame)
    sign(request, login.username, login.password)
    return request.encode()


def producer_frames() -> list[bytes]:
    """Requests of ADMIN that create the topic and PRODUCER, who may send to it."""
    name, subject = PRODUCER.username, f"User:{PRODUCER.username}"
    user = {**PRODUCER._asdict(), "userType": "Normal"}
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
    rules = {"subject": subject, "policies": [{"entries": [entry]}]}
    made = [
        topic_frame(),
        RemotingCommand(RequestCode.AUTH_CREATE_USER, {"username": name}, json.dumps(user).encode()).encode(),
        RemotingCommand(
            RequestCode.AUTH_CREATE_ACL, {"subject": subject}, json.dumps(rules).encode()
        ).encode(),
    ]
    return [signed(frame, ADMIN) for frame in made]


def sends(body_bytes: int, *, topic: str = TOPIC) -> list[bytes]:
    return [send_frame(n % QUEUES, bytes(body_bytes), n + 1, topic=topic) for n in range(DISTINCT)]


def featured_sends(body_bytes: int, *, topic: str = TOPIC) -> list[bytes]:
    """Like `sends`, with a key each."""
    return [_send_of(n, body_bytes, featured(n + 1), topic) for n in range(DISTINCT)]


def plain_sends(body_bytes: int, *, topic: str = TOPIC) -> list[bytes]:
    """Records as long as those of `featured_sends`, with a meaningless property instead of tag and key."""
    found = []
    for n in range(DISTINCT):
        text = f"UNIQ_KEY\x01{n + 1:032X}\x02WAIT\x01true\x02other\x01"
        filled = text + "x" * (len(featured(n + 1)) - len(text) - 1) + "\x02"
        found.append(_send_of(n, body_bytes, filled, topic))
    return found


def varied_sends(body_bytes: int, *, topic: str = TOPIC) -> list[bytes]:
    """As several producers of one program send: tags, keys and user properties come, go and change their order."""
    dice = random.Random(3)
    found = []
    for n in range(DISTINCT):
        own = [f"p{number}\x01{dice.random()}\x02" for number in range(dice.randrange(4))]
        dice.shuffle(own)
        own += [f"TAGS\x01tag{n % 3}\x02"] * (dice.random() < 0.8)
        own += [f"KEYS\x01key{n}\x02"] * (dice.random() < 0.5)
        text = "".join([f"UNIQ_KEY\x01{n + 1:032X}\x02WAIT\x01true\x02", *own])
        group = f"producer-{dice.randrange(3)}"
        found.append(send_frame(n % QUEUES, bytes(body_bytes), n + 1, topic=topic, text=text, group=group))
    return found


def featured(number: int) -> str:
    return f"{properties(number)}KEYS\x01{number:08}\x02"


def _send_of(n: int, body_bytes: int, text: str, topic: str) -> bytes:
    return send_frame(n % QUEUES, bytes(body_bytes), n + 1, topic=topic, text=text)


def topic_sends(names: Sequence[str], body_bytes: int) -> list[bytes]:
    """One send to each topic, queue 0."""
    return [send_frame(0, bytes(body_bytes), n + 1, topic=name) for n, name in enumerate(names)]


def topics_frame(names: Sequence[str], queues: int) -> bytes:
    """Makes all of them. A broker takes at most TOPICS_MAX at a time."""
    configs = [
        {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {},
        }
        for name in names
    ]
    body = json.dumps({"topicConfigList": configs}).encode()
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).encode()


def batches(body_bytes: int, *, topic: str = TOPIC) -> list[bytes]:
    return [batch_frame(n % QUEUES, bytes(body_bytes), n + 1, topic=topic) for n in range(DISTINCT // 4)]


def pulls(messages_each: int, *, topic: str) -> list[bytes]:
    """Pulls of PULLED messages through all queues from their start, as far as each has `messages_each`."""
    places = [
        (queue_id, at) for at in range(0, messages_each - PULLED + 1, PULLED) for queue_id in range(QUEUES)
    ]
    return [pull_frame(queue_id, at, n + 1, topic=topic) for n, (queue_id, at) in enumerate(places)]


def redis(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def redis_sets(body_bytes: int) -> list[bytes]:
    return [redis(b"SET", b"key:%012d" % n, bytes(body_bytes)) for n in range(DISTINCT)]


def redis_adds(body_bytes: int) -> list[bytes]:
    return [
        redis(b"XADD", b"stream%d" % (n % QUEUES), b"MAXLEN", b"~", b"100000", b"*", b"b", bytes(body_bytes))
        for n in range(DISTINCT)
    ]
