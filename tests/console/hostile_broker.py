"""A name server and broker in one that answers every request with what an enemy would choose."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.console.running import HOSTILE

MARKUP = HOSTILE[0]
ENDLESS = {
    "more": True,
    "nextGroup": "g1",
    "nextTopic": "t1",
    "topics": [{"topic": "t1", "messages": 1}],
    "groups": [{"group": "g1", "topics": [{"topic": "t1"}]}],
    "topicList": ["t1"],
    "messages": [],
    "untilMs": 1,
    "lines": [],
    "connections": [],
    "rows": [],
    "table": {},
}
ANSWERS: dict[str, Callable[[RemotingCommand], RemotingCommand]] = {
    "no JSON": lambda request: request.answer(body=b"\x00\xff{'"),
    "another type": lambda request: request.answer(body=b"[null, 7]"),
    "members of other types": lambda request: request.answer(
        body=json.dumps(
            dict.fromkeys((*ENDLESS, "brokerAddrTable", "data", "offsetTable", "properties"), 7)
        ).encode()
    ),
    "deep": lambda request: request.answer(body=b'{"a":' * 5000 + b"[" * 5000),
    "markup in errors": lambda request: request.answer(1, f"{MARKUP} check signature failed."),
    "long errors": lambda request: request.answer(1, "x" * 100_000),
    "endless": lambda request: request.answer(body=json.dumps(ENDLESS).encode()),
    "large": lambda request: request.answer(body=b'{"topicList":["' + b"x" * (1 << 20) + b'"]}'),
    "markup in names": lambda request: request.answer(
        body=json.dumps(
            {"topicList": [MARKUP], "table": {MARKUP: MARKUP}, "topics": [{"topic": MARKUP}]}
        ).encode()
    ),
}


@contextmanager
def hostile_broker(kind: str) -> Iterator[tuple[str, int]]:
    """Where it listens. Cluster and routes lead to itself, so that it is asked everything."""
    answer = ANSWERS[kind]

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(head := self.rfile.read(4)) == 4:
                request = RemotingCommand.decode(head + self.rfile.read(int.from_bytes(head)))
                if not request.is_oneway:
                    self.wfile.write(_chosen(request).encode())

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    def _chosen(request: RemotingCommand) -> RemotingCommand:
        name = MARKUP if kind.startswith("markup") else "b1"
        own = {
            "brokerName": name,
            "cluster": name,
            "brokerAddrs": {"0": f"127.0.0.1:{server.server_address[1]}"},
        }
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            info = {"brokerAddrTable": {name: own}, "clusterAddrTable": {name: [name]}}
            return request.answer(body=json.dumps(info).encode())
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            queue = {
                "brokerName": name,
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicSysFlag": 0,
            }
            return request.answer(body=json.dumps({"brokerDatas": [own], "queueDatas": [queue]}).encode())
        return answer(request)

    with Server(("127.0.0.1", 0), Connection) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()
