"""Registration and heartbeats of brokers at the name server. Loop thread; large bodies are read in another
one.

REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322, BROKER_HEARTBEAT 904, and LIST_BROKER_FAULTS 30021
of FireArrow. The RouteTable decides.
"""

import asyncio
import zlib

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Peer, Routes, with_host
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.kv import ORDER_TOPIC_CONFIG, KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.registration import RegisterBody, Registration, name, register_body
from firearrow.broker.tables.routes import RouteTable

ZONE_NAME = "__ZONE_NAME"
INLINE_BYTES = 128 << 10
"""Larger bodies, and compressed ones, are read in another thread: 100,000 topics take half a second."""
READING_MAX = 4
"""Bodies that are read in threads at the same time."""


class RegistrationHandler:
    def __init__(self, routes: RouteTable, kv: KvTable, options: NamingOptions) -> None:
        self._routes = routes
        self._kv = kv
        self._options = options
        self._reading = 0

    def routes(self) -> Routes:
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.LIST_BROKER_FAULTS: self.list_faults,
        }

    def register_broker(self, request: RemotingCommand, peer: Peer) -> Answer:
        crc = request.integer_or("bodyCrc32", 0, 32)
        if crc != 0 and crc != zlib.crc32(request.body) & 0x7FFFFFFF:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if len(request.body) > INLINE_BYTES or request.boolean_or("compressed", False):
            return self._register_later(request, peer)
        return self._register(request, peer, _body(request))

    async def _register_later(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        if self._reading >= READING_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"{READING_MAX} large registrations are being read: try again later"
            )
        self._reading += 1
        try:
            body = await asyncio.to_thread(_body, request)
        finally:
            self._reading -= 1
        return None if peer.closed else self._register(request, peer, body)

    def _register(self, request: RemotingCommand, peer: Peer, body: RegisterBody) -> RemotingCommand:
        drop_missing = self._options.flag("deleteTopicWithBrokerRegistration")
        master = self._routes.register(_registration(request, body), peer, drop_missing=drop_missing)
        ext = {}
        if master is not None:
            ext = {"masterAddr": with_host(master.address, peer)}
            if master.ha_address.rpartition(":")[2] not in ("", "0"):  # else it does not replicate
                ext["haServerAddr"] = with_host(master.ha_address, peer)
        orders = None
        if self._options.flag("returnOrderTopicConfigToBroker"):
            orders = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return request.answer(ext=ext, body=b"" if orders is None else fastjson.dumps({"table": orders}))

    def unregister_broker(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        request.text("brokerName")
        request.integer("brokerId")
        cluster, address = request.text("clusterName"), _outside_address(request)
        self._routes.unregister(cluster, address)
        self._routes.faults.unregistered(address, cluster=cluster)
        return request.answer()

    def query_data_version(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        request.text("brokerName")
        request.integer("brokerId")
        cluster, address = request.text("clusterName"), _outside_address(request)
        try:
            version = DataVersion.from_object(fastjson.loads_body(request.body))
        except ValueError as error:
            raise FieldError(f"the body is not a DataVersion: {error}") from None
        known = self._routes.version(cluster, address)
        self._routes.touch(cluster, address)
        ext = {"changed": "true" if known != version else "false"}
        return request.answer(ext=ext, body=b"" if known is None else fastjson.dumps(known.to_object()))

    def broker_heartbeat(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        request.text("brokerName")
        self._routes.touch(request.text("clusterName"), _outside_address(request))
        return request.answer()

    def list_faults(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        faults = [
            {**each, "address": with_host(str(each["address"]), peer)}
            for each in self._routes.faults.to_objects()
        ]
        return request.answer(body=fastjson.dumps({"faults": faults}))


def _body(request: RemotingCommand) -> RegisterBody:
    try:
        return register_body(request.body, request.version, request.boolean_or("compressed", False))
    except ValueError as error:
        raise FieldError(str(error)) from None


def _registration(request: RemotingCommand, body: RegisterBody) -> Registration:
    broker_id = request.integer("brokerId")
    timeout_ms = request.integer_or("heartbeatTimeoutMillis", -1)
    acting_master = None
    if "enableActingMaster" in request.ext:
        acting_master = request.boolean_or("enableActingMaster", False)
    if broker_id < 0:
        raise FieldError(f"brokerId must not be negative: {broker_id}")
    return Registration(
        cluster=_name(request, "clusterName"),
        broker=_name(request, "brokerName"),
        broker_id=broker_id,
        address=_outside_address(request),
        ha_address=_name(request, "haServerAddr"),
        version=body.version,
        topics=body.topics,
        filter_servers=body.filter_servers,
        zone=_name(request, ZONE_NAME) if ZONE_NAME in request.ext else None,
        timeout_ms=None if timeout_ms < 0 else timeout_ms,
        acting_master=acting_master,
    )


def _outside_address(request: RemotingCommand) -> str:
    """The broker's `host:port`. The host is required, because an address without one is our own broker's."""
    address = _name(request, "brokerAddr")
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and len(port) <= 5):
        raise FieldError(f"brokerAddr must be host:port, not {address[:64]!r}")
    return address


def _name(request: RemotingCommand, field: str) -> str:
    try:
        return name(request.text(field), field)
    except ValueError as error:
        raise FieldError(str(error)) from None
