"""Rows of the 5.x clients: calls of gRPC to FireArrow's port and to Apache's proxy, by native/grpcgen.c."""

import itertools
import subprocess

from bench import frames, load, rows
from bench.load import Load, LoadError
from bench.request_rows import sending
from bench.rows import OURS, Goal, Row, Work
from bench.servers import Server
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

PROXY = "apache proxy"
ALONE = "firearrow: alone"
TOPIC = "bench-grpc"
QUEUES = 4
RECEIVED = 32
INVISIBLE_S = 60
BORN_S = 1_700_000_000
FILLED = 200_000
ENDLESS = 1_000_000_000
_groups = itertools.count(1)


def calls(
    server: Server,
    messages: list[bytes],
    *,
    connections: int,
    depth: int,
    requests: int,
    receive: bool = False,
) -> Load:
    """Make calls with these messages (see native/grpcgen.c). LoadError, also if ours resets one."""
    words = (
        f"connections={connections}",
        f"depth={depth}",
        f"requests={requests}",
        f"receive={int(receive)}",
    )
    with load.kept(messages) as path:
        made = load.run_program(load.command("grpcgen", *server.grpc_address, path, *words))
    if made.resets and server.name == OURS:
        raise LoadError(f"{made.resets} of {made.requests} calls were reset")
    return made


# ---- messages ----


def sends(body_bytes: int) -> list[bytes]:
    """As Apache's Java client makes them, with a tag and a key."""
    from firearrow.broker.grpc import messages  # noqa: PLC0415 - protobuf is needed by these rows alone

    request, _ = messages.method_classes("SendMessage")
    found = []
    for n in range(frames.DISTINCT):
        own = {
            "tag": "TagA",
            "keys": [f"{n:08}"],
            "message_id": f"01{n:032X}",
            "body_encoding": "IDENTITY",
            "message_type": "NORMAL",
            "born_timestamp": {"seconds": BORN_S, "nanos": n * 1_000_000},
            "born_host": "client-host",
            "queue_id": n % QUEUES,
        }
        message = {"topic": {"name": TOPIC}, "system_properties": own, "body": bytes(body_bytes)}
        found.append(request(messages=[message]).SerializeToString())
    return found


def receives(group: str) -> list[bytes]:
    """The settings of a simple consumer, its receive, and an acknowledgement without entries."""
    from firearrow.broker.grpc import messages  # noqa: PLC0415

    receive, _ = messages.method_classes("ReceiveMessage")
    ack, _ = messages.method_classes("AckMessage")
    everything = {"type": "TAG", "expression": "*"}
    subscription = {
        "group": {"name": group},
        "subscriptions": [{"topic": {"name": TOPIC}, "expression": everything}],
    }
    settings = {
        "client_type": "SIMPLE_CONSUMER",
        "request_timeout": {"seconds": 5},
        "subscription": subscription,
    }
    made = [
        messages.TelemetryCommand(settings=settings),
        receive(
            group={"name": group},
            message_queue={"topic": {"name": TOPIC}, "id": -1},
            filter_expression=everything,
            batch_size=RECEIVED,
            invisible_duration={"seconds": INVISIBLE_S},
            long_polling_timeout={"seconds": 10},
        ),
        ack(group={"name": group}, topic={"name": TOPIC}),
    ]
    return [message.SerializeToString() for message in made]


# ---- loads ----


def unary(connections: int, depth: int, requests: int) -> Work:
    return lambda server, part: calls(
        server,
        sends(1024),
        connections=connections,
        depth=depth,
        requests=int(requests * part),
    )


def beside_calls(work: Work) -> Work:
    """While calls take what the server has left."""

    def both(server: Server, part: float) -> Load:
        words = ("connections=1", "depth=64", f"requests={ENDLESS}")
        with load.kept(sends(1024)) as path:
            command = load.command("grpcgen", *server.grpc_address, path, *words)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as calling:
                try:
                    return work(server, part)
                finally:
                    calling.kill()

    return both


def receiving(connections: int, depth: int, messages: int) -> Work:
    """A group of its own receives all from the start."""

    def work(server: Server, part: float) -> Load:
        group = f"bench-grpc-{next(_groups)}"
        _ask(server, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, dumps({"groupName": group}))
        for queue_id in range(QUEUES):
            at = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": "0"}
            _ask(server, RequestCode.UPDATE_CONSUMER_OFFSET, at)
        return calls(
            server,
            receives(group),
            connections=connections,
            depth=depth,
            requests=int(messages * part),
            receive=True,
        )

    return work


def _ask(server: Server, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> None:
    answer = load.ask(server.address, RemotingCommand.request(code, ext, body).encode())
    if answer.code != 0:
        raise LoadError(f"request {code}: {answer.remark}")


def _topic(server: Server, part: float) -> None:
    load.create_topic(server.address, TOPIC)
    load.create_topic(server.address, frames.TOPIC)


def _filled(server: Server, part: float) -> None:
    _topic(server, part)
    requests = [
        frames.send_frame(n % QUEUES, bytes(1024), n + 1, topic=TOPIC) for n in range(frames.DISTINCT)
    ]
    load.drive(server.address, requests, load.Workload(8, 8, int(FILLED * part)))


def p50_of(peer: str, limit: float) -> Goal:
    text = f"p50 of {peer}"
    return Goal(text, limit, True, lambda found, ours: found[ours].p50 / found[peer].p50)


def grpc_rows() -> list[Row]:
    return [
        Row(
            "gRPC send 1 x 64, 1 KiB",
            OURS,
            {OURS: unary(1, 64, 200_000), PROXY: unary(1, 64, 40_000)},
            (rows.of(PROXY, 5), rows.cpu_of(PROXY, 0.2), rows.memory()),
            prepare=_topic,
        ),
        Row(
            "gRPC send 1 x 1, 1 KiB",
            OURS,
            {OURS: unary(1, 1, 20_000), PROXY: unary(1, 1, 10_000)},
            (p50_of(PROXY, 0.5), rows.memory()),
            prepare=_topic,
        ),
        Row(
            "send 64 x 1 beside gRPC 1 x 64, 1 KiB",
            OURS,
            {OURS: beside_calls(sending(1024, 64, 1, 100_000)), ALONE: sending(1024, 64, 1, 200_000)},
            (rows.of(ALONE, 0.5),),
            prepare=_topic,
        ),
        Row(
            "gRPC receive and ack, 1 KiB",
            OURS,
            {OURS: receiving(1, 4, 50_000), PROXY: receiving(1, 4, 20_000)},
            (rows.of(PROXY, 5), rows.memory()),
            prepare=_filled,
        ),
    ]
