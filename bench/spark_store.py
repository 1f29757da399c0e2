"""A store for benchmarks of the Spark tools: messages of 1 KiB, half random, in 4 topics of 4 queues.

Written with the native store, in batches. Each message has four properties, as Apache's clients set them.
"""

import random
from pathlib import Path

from firearrow._native.store.message_store import InnerMessage, MessageStore

TOPICS = tuple(f"orders-{number}" for number in range(4))
QUEUES = 4
BODY_BYTES = 1024
BATCH = 100
PLAIN = b"an order of many things " * 512
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
BEGUN_MS = 1_760_000_000_000


def body(dice: random.Random, body_bytes: int) -> bytes:
    return dice.randbytes(body_bytes // 2) + PLAIN[: body_bytes - body_bytes // 2]


def item(number: int, text: bytes) -> bytes:
    """One message of a batch."""
    named = {
        "UNIQ_KEY": f"{number:032X}",
        "WAIT": "true",
        "TAGS": f"tag{number % 5}",
        "KEYS": f"order-{number:09}",
    }
    properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()
    size = 22 + len(text) + len(properties)
    head = size.to_bytes(4, "big") + bytes(12) + len(text).to_bytes(4, "big")
    return head + text + len(properties).to_bytes(2, "big") + properties


def make(folder: Path, log_bytes: int, body_bytes: int = BODY_BYTES) -> int:
    """Write a store with about `log_bytes` of log; the number of messages."""
    dice, number, now_ms = random.Random(7), 0, BEGUN_MS
    with MessageStore.open(folder) as store:
        while store.written < log_bytes:
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    numbers = range(number, number + BATCH)
                    items = b"".join(item(each, body(dice, body_bytes)) for each in numbers)
                    store.put_batch(
                        InnerMessage(
                            topic,
                            queue_id,
                            items,
                            b"",
                            born_timestamp=now_ms,
                            born_host=HOST,
                            store_host=HOST,
                        ),
                        now_ms=now_ms + 1,
                    )
                    number, now_ms = number + BATCH, now_ms + 10
            store.write()
    return number
