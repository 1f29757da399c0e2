"""Provenance: where a message that was sent again came from, by its own properties; identifies repeats.

Written by `_native.columnar.property_edits`, read here. Any thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firearrow._native.columnar.property_edits import (
    REPLAY_BROKER,
    REPLAY_JOB,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
)
from firearrow.client.base.message import MessageQueue

__all__ = [
    "NAMES",
    "REPLAY_BROKER",
    "REPLAY_JOB",
    "REPLAY_OFFSET",
    "REPLAY_QUEUE",
    "REPLAY_TOPIC",
    "Provenance",
]

NAMES = (REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC, REPLAY_QUEUE, REPLAY_OFFSET)


@dataclass(frozen=True, slots=True)
class Provenance:
    """`queue` and `queue_offset`: of the record at the source; `job`: the job that sent it again."""

    job: str
    queue: MessageQueue
    queue_offset: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """None: the message was not sent again by such a job, or a property is missing or invalid."""
        try:
            job, broker_name, topic, queue_id, offset = (properties[name] for name in NAMES)
            return cls(job, MessageQueue(topic, broker_name, int(queue_id)), int(offset))
        except (KeyError, ValueError):
            return None
