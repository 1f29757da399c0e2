"""Selectors: which queue a message goes to, by its own content. Plain functions; users write their own the same way."""

import random
from collections.abc import Callable, Sequence

from firearrow._native.base.hash import java_hash
from firearrow.client.base.message import Message, MessageQueue

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Given all queues that can be written to, and the message."""


def by_hash(key: str) -> Selector:
    """Equal keys go to the same queue, the one that Java's client chooses for a String."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[hash_index(key, len(queues))]

    return select


def by_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return random.choice(queues)


def hash_index(key: str, count: int) -> int:
    """Java's arithmetic: the remainder has the sign of the hash; then its absolute value."""
    return abs(java_hash(key)) % count
