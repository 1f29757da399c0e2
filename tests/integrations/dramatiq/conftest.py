"""A broker of dramatiq with a queue that no other test uses, and workers in this process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

pytest.importorskip("dramatiq")

import dramatiq
from dramatiq import Worker

from firearrow.client.integrations.dramatiq import RocketMQBroker, TaskOptions
from tests.interop.peers import Peer

QUICK = TaskOptions(invisible_s=2, send_timeout_s=20)


@contextmanager
def working(broker: RocketMQBroker, **options: object) -> Iterator[Worker]:
    worker = Worker(broker, **({"worker_timeout": 100, "worker_threads": 8} | options))
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


Make = Callable[..., RocketMQBroker]


@pytest.fixture
def make(name: str) -> Iterator[Make]:
    """`make(peer, options)`: a broker that is dramatiq's global one, and is closed after the test."""
    made: list[RocketMQBroker] = []

    def new(peer: Peer, options: TaskOptions = QUICK, **others: object) -> RocketMQBroker:
        broker = RocketMQBroker(peer.name_server, group_name=name, options=options, **others)
        broker.emit_after("process_boot")
        dramatiq.set_broker(broker)
        made.append(broker)
        return broker

    yield new
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make: Make, site: Peer) -> RocketMQBroker:
    return make(site)


Works = Callable[..., AbstractContextManager[Worker]]
