"""Producers looked at: the connections of one group (204), and those of all groups (328). Loop thread."""

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.clients import ClientTable


class ProducersHandler:
    def __init__(self, clients: ClientTable, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def routes(self) -> Routes:
        return {
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def connections(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = request.text("producerGroup")
        members = self._clients.producers(name)
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.answer(
            body=orjson.dumps({"connectionSet": [member.to_object() for member in members]})
        )

    def all_producers(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`lastUpdateTimestamp` is wall-clock time; members note the time that never goes back."""
        behind_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        data = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": member.language_name,
                    "lastUpdateTimestamp": member.seen_ms + behind_ms,
                    "remoteIP": "/{}:{}".format(*member.peer.remote),
                    "version": member.version,
                }
                for member in members
            ]
            for group, members in sorted(self._clients.producer_groups().items())
        }
        return request.answer(body=orjson.dumps({"data": data}))
