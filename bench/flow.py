"""Loads with consumers: end to end (native/endtoend.c), and idle long polls (native/idlers.c)."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.frames import QUEUES, sends
from bench.load import LIMIT_S, Address, Load, LoadError, command, create_topic, kept, run_program

GROUP = "bench-consumer"
READY_S = 60
_numbers = itertools.count()


def new_topic(address: Address, name: str) -> str:
    """Create a new topic, so that the consumers get only what this load sends."""
    topic = f"{name}-{os.getpid()}-{next(_numbers)}"
    create_topic(address, topic)
    return topic


def end_to_end(
    address: Address,
    *,
    body_bytes: int,
    producers: int,
    depth: int,
    messages: int,
    rate: float = 0,
    skip: int = 0,
) -> Load:
    """Send messages to one consumer per queue. LoadError: a message was lost, duplicated or damaged.

    `rate`: messages per second, evenly spaced; latencies count from when a message was due, without the first
    `skip`.
    """
    topic = new_topic(address, "flow")
    with kept(sends(body_bytes, topic=topic)) as path:
        numbers = {
            "producers": producers,
            "depth": depth,
            "consumers": QUEUES,
            "messages": messages,
            "rate": rate,
            "skip": skip,
        }
        words = (f"{key}={value}" for key, value in numbers.items())
        limit_s = LIMIT_S if not rate else LIMIT_S + messages / rate
        return run_program(command("endtoend", *address, path, GROUP, topic, *words), limit_s)


@contextmanager
def idlers(address: Address, connections: int) -> Iterator[None]:
    """A context with idle consumers, each with one long poll in flight.

    LoadError: one of them got a message.
    """
    topic = new_topic(address, "idle")
    words = command("idlers", *address, GROUP, topic, f"connections={connections}", f"queues={QUEUES}")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LoadError(process.communicate(timeout=READY_S)[1].decode().strip())
            yield
        finally:
            complaint = process.communicate(timeout=READY_S)[1].decode().strip()
    if process.returncode != 0:
        raise LoadError(complaint)
