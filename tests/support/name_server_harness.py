"""NameServerHarness: a whole name server without sockets, with a manual clock, and the requests of brokers."""

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.base.peer import Address
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import MinBrokerChange
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer

HERE: Address = ("127.0.0.1", 9876)


async def no_connection(host: str, port: int) -> RecordedPeer:
    raise ConnectionRefusedError(f"nobody is at {host}:{port}")


class NameServerHarness:
    """`changes`: of smallest broker ids, in order."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.kv_changes = 0
        self.server = NameServer(self.clock, NamingOptions(given), self._kv_changed, no_connection)
        self.changes: list[MinBrokerChange] = []
        self.server.routes.min_changed = self.changes.append
        self.routes = self.server.routes
        self.dispatch = Dispatch(self.server.handlers())

    def _kv_changed(self) -> None:
        self.kv_changes += 1

    def ask(self, request: RemotingCommand, peer: RecordedPeer | None = None) -> RemotingCommand:
        peer = RecordedPeer(local=HERE) if peer is None else peer
        before = len(peer.replies)
        self.dispatch(request, peer)
        if len(peer.replies) == before:
            raise LookupError("no answer yet")
        return peer.replies[-1]

    async def ask_and_wait(
        self, request: RemotingCommand, peer: RecordedPeer | None = None
    ) -> RemotingCommand:
        """For a request that is answered by a task."""
        peer = RecordedPeer(local=HERE) if peer is None else peer
        self.dispatch(request, peer)
        await self.dispatch.drain()
        return peer.replies[-1]

    def call(self, code: RequestCode, **ext: object) -> RemotingCommand:
        return self.ask(RemotingCommand.request(code, {key: str(value) for key, value in ext.items()}))

    def route(self, topic: str) -> dict[str, Any] | None:
        answer = self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return None if answer.code else fastjson.loads(answer.body)

    def register(self, peer: RecordedPeer | None = None, **fields: Any) -> RemotingCommand:  # noqa: ANN401
        request = register_request(**fields)
        if request.ext.get("compressed") != "true":
            return self.ask(request, peer)
        return asyncio.run(self.ask_and_wait(request, peer))


def config(name: str, queues: int = 4, perm: int = 6, flag: int = 0) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def register_body(*configs: dict[str, Any], counter: int = 1, state: int = 0, filters: Any = ()) -> bytes:  # noqa: ANN401
    version = {"counter": counter, "stateVersion": state, "timestamp": 1_700_000_000_000}
    table = {item["topicName"]: item for item in configs}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return fastjson.dumps({"filterServerList": list(filters), "topicConfigSerializeWrapper": wrapper})


def register_request(
    *,
    broker: str = "a",
    broker_id: int = 0,
    address: str = "10.0.0.1:10911",
    cluster: str = "C",
    body: bytes | None = None,
    version: int = 513,
    **ext: object,
) -> RemotingCommand:
    """103 with two topics, `T1` and `T2`, if no body is given."""
    body = register_body(config("T1"), config("T2")) if body is None else body
    fields = {
        "brokerName": broker,
        "brokerAddr": address,
        "clusterName": cluster,
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": broker_id,
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
        **ext,
    }
    texts = {key: str(value) for key, value in fields.items() if value is not None}
    return RemotingCommand(RequestCode.REGISTER_BROKER, texts, body, version=version)
