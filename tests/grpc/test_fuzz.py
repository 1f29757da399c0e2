"""Mutated requests of each method: each gets an answer with a status, or a status of gRPC, and the log no error."""

import random

import grpc
import pytest

from firearrow.broker.grpc import messages
from tests.grpc import recordings
from tests.support.broker_process import BrokerProcess
from tests.support.grpc_caller import STREAMS, GrpcCaller, create_group, create_topic

EACH = 40
RECORDING = "probe-refusals"
TOPIC, GROUP = "gz-160226-probe-normal", "gz-160226-probe-normal-g"
EXPECTED = {grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INVALID_ARGUMENT}


def requests() -> dict[str, list[bytes]]:
    """Recorded ones of each method, serialized."""
    found: dict[str, list[bytes]] = {}
    for event in recordings.events(RECORDING):
        if event.message is None or not event.is_request or event.rpc in ("NoSuchThing", "Telemetry"):
            continue
        if "hex" not in event.message:
            kind, _ = messages.method_classes(event.rpc)
            data = recordings.parsed(event.message, kind).SerializeToString()
            if len(data) < 2000:
                found.setdefault(event.rpc, []).append(data)
    return found


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\n")
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed))
        way = rng.randrange(4)
        if way == 0:
            changed[at] = rng.randrange(256)
        elif way == 1:
            del changed[at : at + rng.randrange(1, 6)]
        elif way == 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 6))
        else:
            changed[at] ^= 1 << rng.randrange(8)
        changed = changed or bytearray(b"\n")
    return bytes(changed)


@pytest.mark.parametrize("seed", range(2))
def test_mutated_requests_are_answered(broker: BrokerProcess, seed: int) -> None:
    rng = random.Random(seed)
    with broker.connect() as connection:
        create_topic(connection, TOPIC)
        create_group(connection, GROUP)
    with GrpcCaller(broker.address, client_id="probe@160226") as caller:
        caller.consume(GROUP, TOPIC)
        for rpc, recorded in requests().items():
            kind = caller.channel.unary_stream if rpc in STREAMS else caller.channel.unary_unary
            stub = kind(f"/{messages.SERVICE}/{rpc}")
            for _ in range(EACH):
                data = mutated(rng, rng.choice(recorded))
                timeout = 0.05 if rpc in STREAMS else 10
                try:
                    answer = stub(data, metadata=caller.metadata, timeout=timeout)
                    assert list(answer) if rpc in STREAMS else answer
                except grpc.RpcError as error:
                    found = error.code()
                    assert found in EXPECTED, (rpc, data, error)  # noqa: PT017
        caller.produce(TOPIC)
        assert caller.send(TOPIC, b"still served").status.code == messages.CODES["OK"]
