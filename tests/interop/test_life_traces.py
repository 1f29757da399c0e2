"""Message traces."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed

pytestmark = pytest.mark.interop

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def test_traces_are_written(client: Driver, name: str) -> None:
    """Of sending and of consuming; the trace topic is the broker's own and there from the start.

    A client sends traces in tens, or seconds later; Java's loses some of the last when it is stopped. So there are many
    messages, and one of them with all its traces is awaited while everything runs.
    """
    reader = f"{name}-traces"
    bodies = hexed(*(f"traced {number}" for number in range(21)))
    client.ask("consume", name=reader, group=reader, topic=TRACE_TOPIC)
    sent = client.ask("send", group=f"{name}-p", trace="yes", topic=name, keys="traced", body=bodies)
    client.ask("consume", name=name, group=name, topic=name, trace="yes")
    client.await_bodies([name], bodies)

    def kinds(message_id: str) -> set[str]:
        texts = [bytes.fromhex(event["body"]).decode() for event in client.consumed(reader)]
        records = [record for text in texts for record in text.split("\x02")]
        return {record.split("\x01")[0] for record in records if message_id in record}

    def traced() -> bool:
        return any(kinds(event["msgId"]) == {"Pub", "SubBefore", "SubAfter"} for event in sent)

    client.await_true(traced, "a message with all its traces")
    for consumer in (name, reader):
        client.ask("stop", name=consumer)
