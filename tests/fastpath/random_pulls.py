"""Random frames of pulling consumers, and a heartbeat of one. Seeded."""

import json
import random

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.fastpath.random_sends import ODD_NUMBERS, TOPICS

GROUPS = ("G1", "G2", "Online", "new group", "")
EXPRESSIONS = ("*", "A", "A || B", "B", "жж", "A||жж", "", "||", "a > 1", "nothing", *["*", "A"] * 3)
MANY_TAGS = "||".join(f"t{n}" for n in range(40)) + "||A"


def heartbeat(opaque: int) -> bytes:
    """The group Online has a member, which subscribes to two topics."""
    subscriptions = [
        {
            "topic": "One",
            "subString": "*",
            "subVersion": 5,
            "expressionType": "TAG",
            "tagsSet": [],
            "codeSet": [],
        },
        {"topic": "Four", "subString": "A", "subVersion": 5, "tagsSet": ["A"], "codeSet": [65]},
    ]
    group = {
        "groupName": "Online",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": subscriptions,
    }
    body = json.dumps({"clientID": "c", "consumerDataSet": [group], "producerDataSet": []}).encode()
    return RemotingCommand(RequestCode.HEART_BEAT, {}, body, opaque=opaque).encode()


def pulling(rng: random.Random, opaque: int) -> bytes:
    """The frame of a pull; half of them find messages."""
    topic, queues = rng.choice(TOPICS)
    ext = {
        "consumerGroup": rng.choice((*GROUPS, *["G1", "Online"] * 4)),
        "topic": topic,
        "queueId": str(rng.randrange(queues)),
        "queueOffset": str(rng.choice((0, 1, 5, 20, 60, 100, 5000, -1))),
        "maxMsgNums": str(rng.choice((0, 1, 3, 32, 64, 5000))),
        "sysFlag": str(rng.choice((4, 4, 4, 5, 6, 7, 0, 1, 2, 12, 16))),
        "commitOffset": str(rng.randrange(50)),
        "suspendTimeoutMillis": "1",
        "subscription": rng.choice((*EXPRESSIONS, MANY_TAGS)),
        "subVersion": str(rng.choice((0, 0, 5, 9))),
        "expressionType": rng.choice((*["TAG"] * 3, "", "SQL92", "odd")),
    }
    if rng.random() < 0.15:
        ext[rng.choice(list(ext))] = rng.choice(ODD_NUMBERS)
    if rng.random() < 0.1:
        del ext[rng.choice(list(ext))]
    if rng.random() < 0.05:
        ext[rng.choice(("requestSource", "extra", 'e"x'))] = rng.choice(("0", "1", 'q"'))
    return RemotingCommand(
        RequestCode.PULL_MESSAGE,
        ext,
        opaque=opaque,
        flag=2 * (rng.random() < 0.03),
        serializer=int(rng.random() < 0.4),
    ).encode()
