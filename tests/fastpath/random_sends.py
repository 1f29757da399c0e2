"""Random frames of producers: plain, slightly different, and malformed ones. The seed reproduces a failure."""

import random
import struct

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

TOPICS = (("One", 1), ("Four", 4), ("Ordered", 2))
SHORT = "abcdefghijklm"
LONG = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch",
)  # fmt: skip
ODD_NUMBERS = ("", "x", "+1", "-1", "007", " 1", "1.0", "99999999999", "9" * 30, "2147483648", "-0", "true")
ODD_PROPERTIES = (
    ("DELAY", "0"), ("DELAY", "x"), ("TRAN_MSG", "false"), ("POP_CK", "1 2 3"), ("MSG_REGION", "elsewhere"),
    ("TRACE_ON", "false"), ("CLUSTER", "mine"), ("INNER_MULTI_DISPATCH", "%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", "1"),
    ("_SYS_MSG_PRIORITY_", "1"), ("TIMER_DELAY_SEC", "x"), ("TIMER_OUT_MS", "5"), ("WAIT", "false"), ("WAIT", "FALSE"),
    ("WAIT", "no"), ("empty", ""), ("", "nameless"), ("UNIQ_KEY", ""), ("KEYS", "k1 k2"), ("tagged", "a\x01b"),
    ("smile", "\U0001f600"), ("ключ", "значение"), ('quo"te', "back\\slash"), ("TAGS", "TagB"), ("lone", "\udc80"),
)  # fmt: skip


def properties(rng: random.Random, unique: str) -> str:
    pairs = [("UNIQ_KEY", unique), ("WAIT", "true"), ("TAGS", rng.choice(("A", "B", "жж")))]
    if rng.random() < 0.3:
        pairs.append((f"p{rng.randrange(3)}", "v" * rng.randrange(1, 40)))
    if rng.random() < 0.35:
        pairs.extend(rng.choices(ODD_PROPERTIES, k=rng.randrange(1, 3)))
    if rng.random() < 0.1:
        pairs.append(rng.choice(pairs))
    if rng.random() < 0.1:
        rng.shuffle(pairs)
    if rng.random() < 0.02:
        pairs.append(("long", "y" * rng.choice((32000, 33000, 70000))))
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    if rng.random() < 0.1:
        text = rng.choice((text[:-1], text + "\x02", text + "loose", "\x02" + text, ""))
    return text


def batch(rng: random.Random) -> bytes:
    items = b""
    for _ in range(rng.choice((1, 2, 5, 40))):
        body, own = bytes(rng.randrange(0, 60)), b"UNIQ_KEY\x01%d\x02" % rng.randrange(1 << 30)
        size = 22 + len(body) + len(own) + rng.choice((0,) * 30 + (1, -1))
        items += struct.pack(">iiiii", size, 0, 0, rng.randrange(3), len(body)) + body
        items += struct.pack(">h", len(own)) + own
    return items[: rng.choice((None,) * 20 + (-1, 10))]


def sending(rng: random.Random, opaque: int) -> bytes:
    """The frame of a send."""
    code = rng.choice(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        )
    )
    topic, queues = rng.choice(TOPICS)
    many = code == RequestCode.SEND_BATCH_MESSAGE
    values = [
        "PG",
        topic,
        "TBW102",
        "4",
        str(rng.randrange(queues)),
        str(rng.choice((0, 0, 0, 1, 2, 0x303, 0x40))),
        str(1_700_000_000_000 + opaque),
        str(rng.choice((0, 7, -7))),
        properties(rng, f"{opaque:032X}"),
        "0",
        rng.choice(("false", "true")),
        "16",
        rng.choice(("true", "True")) if many else rng.choice(("false", "false", "0", "", "no")),
    ]
    if rng.random() < 0.1:
        values[rng.choice((3, 4, 5, 6, 7, 9))] = rng.choice(ODD_NUMBERS)
        values[1] = "One"  # a queue that the broker chooses is then the same one
    if rng.random() < 0.05:
        values[1] = rng.choice(
            ("Missing", "%RETRY%PG", "TBW102", "SCHEDULE_TOPIC_XXXX", "wrong topic", "", "One\x00", "%LMQ%x")
        )
        values[4] = "0"
    names = LONG if code == RequestCode.SEND_MESSAGE else tuple(SHORT)
    ext = dict(zip(names, values, strict=True))
    if rng.random() < 0.1:
        del ext[rng.choice(names)]
    if rng.random() < 0.1:
        ext[rng.choice(("n", "extra", 'e"x', "brokerName"))] = rng.choice(("b", 'q"', "я"))
    if rng.random() < 0.3:
        ext["Signature"] = rng.choice(
            ("", "я", 'q"', *(f"{rng.randrange(1 << 60):020}/+=" for _ in range(9)))
        )
    body = batch(rng) if many else bytes(rng.randrange(0, 300))
    return RemotingCommand(
        code,
        ext,
        body,
        opaque=opaque,
        flag=2 * (rng.random() < 0.1),
        serializer=int(rng.random() < 0.4),
        version=rng.choice((459, 513, 0)),
        language=rng.randrange(14),
    ).encode()


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """A few bytes of the header are changed; its length stays, and so do code, opaque and flag if it is binary."""
    changed = bytearray(frame)
    header_bytes = int.from_bytes(frame[5:8], "big")
    first = 8 + 13 if frame[4] else 8
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(first, 8 + header_bytes)
        changed[at] = rng.choice((rng.randrange(256), changed[at] ^ 1, 0x22, 0x5C, 0x01, 0x02, 0x30, 0xFF))
    return bytes(changed)
