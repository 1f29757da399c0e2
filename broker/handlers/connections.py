"""LIST_REFUSALS (30007), LIST_CONNECTIONS (30010) and CLOSE_CONNECTION (30011), of FireArrow alone. Loop thread."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import GRPC, REMOTING, GrpcPeer, OpenConnection, Peer, Routes
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.paging import limit_of

SLICE = 64


class RefusedRequests(Protocol):
    """`broker/net/refusals` implements it."""

    by_reason: Counter[str]

    def last(self, count: int) -> Sequence["RefusedRequest"]: ...


class RefusedRequest(Protocol):
    def to_object(self) -> dict[str, object]: ...


class ConnectionsHandler:
    """`broker_ports`: those on which others are not connections to the name server of this process. `connections()`:
    those that are open; `loop_time()`: the event loop's, in seconds."""

    def __init__(
        self,
        clients: ClientTable,
        clock: Clock,
        refusals: RefusedRequests,
        *,
        broker_ports: Collection[int],
        connections: Callable[[], Collection[OpenConnection]],
        loop_time: Callable[[], float],
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._refusals = refusals
        self._broker_ports = broker_ports
        self._connections = connections
        self._loop_time = loop_time

    def routes(self) -> Routes:
        return {
            RequestCode.LIST_REFUSALS: self.refusals,
            RequestCode.LIST_CONNECTIONS: self.connections,
            RequestCode.CLOSE_CONNECTION: self.close,
        }

    def refusals(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        listed = [each.to_object() for each in self._refusals.last(limit_of(request))]
        body = {"refusals": listed, "byReason": dict(self._refusals.by_reason)}
        return request.answer(body=orjson.dumps(body))

    async def connections(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        limit, found = limit_of(request), list[dict[str, Any]]()
        connections = sorted(self._connections(), key=lambda each: each.since)
        for number, connection in enumerate(connections[:limit]):
            if number % SLICE == SLICE - 1 or connection.grpc is not None:  # which may have many clients
                await asyncio.sleep(0)
            if len(found) > limit:
                break
            found += self._of_connection(connection, peer)
        body = {"connections": found[:limit], "more": len(connections) > limit or len(found) > limit}
        return request.answer(body=orjson.dumps(body))

    def _of_connection(self, connection: OpenConnection, peer: Peer) -> list[dict[str, Any]]:
        """One object for each client of the connection; of gRPC several may share it."""
        grpc, now_ms, now_s = connection.grpc, self._clock.now_ms(), self._loop_time()
        common: dict[str, Any] = {
            "address": _address(connection),
            "sinceMs": now_ms - round((now_s - connection.since) * 1000),
            "lastRequestMs": now_ms - round(max(now_s - connection.last_seen, 0) * 1000),
            "asks": connection is peer,
        }
        if grpc is None:
            common["toNameServer"] = connection.local[1] not in self._broker_ports
            common |= {"protocol": REMOTING, "requests": {"frames": connection.received_frames}}
            return [common | self._of_client(connection)]
        common |= {"toNameServer": False, "protocol": GRPC, "requests": {"calls": grpc.calls}}
        listed = [common | self._of_client(each) | _stated(each) for each in grpc.clients]
        return listed or [common | self._of_client(connection)]

    def _of_client(self, peer: Peer) -> dict[str, Any]:
        groups, producer_groups = self._clients.memberships(peer)
        member = self._clients.any_member(peer)
        return {
            "clientId": "" if member is None else member.client_id,
            "language": "" if member is None else member.language_name,
            "version": 0 if member is None else member.version,
            "clientVersion": "",
            "groups": groups,
            "producerGroups": producer_groups,
        }

    def close(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Close connections, except the one that asks."""
        address, client_id = request.text_or("address", ""), request.text_or("clientId", "")
        if bool(address) == bool(client_id):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "give either address (ip:port) or clientId")
        chosen = [
            connection
            for connection in self._connections()
            if connection is not peer and self._is_meant(connection, address, client_id)
        ]
        for connection in chosen:
            connection.close()
        return request.answer(body=orjson.dumps({"closed": len(chosen)}))

    def _is_meant(self, connection: OpenConnection, address: str, client_id: str) -> bool:
        if address:
            return _address(connection) == address
        if connection.grpc is not None:
            return any(client.client_id == client_id for client in connection.grpc.clients)
        member = self._clients.any_member(connection)
        return member is not None and member.client_id == client_id


def _stated(client: GrpcPeer) -> dict[str, Any]:
    """What a client of gRPC states of itself."""
    return {
        "clientId": client.client_id,
        "language": client.language_name,
        "clientVersion": client.version,
    }


def _address(connection: OpenConnection) -> str:
    return "{}:{}".format(*connection.remote)
