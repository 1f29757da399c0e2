"""Master: the master as a slave sees it: its addresses, and requests to it. Loop thread."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.replication.log.record_sums import RECORD_OFFSET, RECORD_SUM, record_sum
from firearrow.broker.replication.session.slave_status import NO_ADDRESS
from firearrow.broker.services.registration import Connect, addresses
from firearrow.broker.tables import json_fields

CONNECT_S = ANSWER_S = 3.0


class MasterError(Exception):
    """The master refused a request, or its answer is malformed. `code`: of its answer, 0 for the latter."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Naming:
    """What a slave needs of its name servers. `refresh()` registers again; `check()` asks for the brokers of our name;
    `fault()`: why none has this broker, empty: one has, or nothing is known yet."""

    refresh: Callable[[], None]
    check: Callable[[], None]
    fault: Callable[[], str]


COMPACTED_PULL = {
    "consumerGroup": "TOOLS_CONSUMER",
    "maxMsgNums": "32",
    "sysFlag": str(int(PullFlag.PULL_SUBSCRIPTION)),
    "subscription": "*",
    "expressionType": "TAG",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}
NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED, ResponseCode.TOPIC_NOT_EXIST)

NO_NAMING = Naming(lambda: None, lambda: None, lambda: "")


class LogRange(NamedTuple):
    """Where the master's log begins and ends."""

    begin: int
    end: int


class Master:
    """`ha_address`: haMasterAddress; where it is set, the name server's answer does not change it. `leaves`: a name
    server that knows no master reports that it has left (enableSlaveActingMaster). `is_online`: it is registered, so
    its tables are copied. `is_offered`: it is not yet, but has offered us its log."""

    def __init__(self, connect: Connect, ha_address: str, *, leaves: bool = False) -> None:
        self._connect = connect
        self._leaves = leaves
        self.is_online = self.is_offered = False
        self.known_host = ""
        """Of the last master that a name server reported."""
        self._fixed = _address(ha_address) if ha_address else None
        self.address: Address | None = None
        self.ha_address: Address | None = self._fixed
        self._peer: Peer | None = None
        self._connecting = asyncio.Lock()

    @property
    def text(self) -> str:
        """Its address; empty: not known."""
        return "" if self.address is None else "{}:{}".format(*self.address)

    def registered(self, ext: Mapping[str, str]) -> None:
        """Take the addresses from the answer to a registration; absent ones leave those that are known."""
        found = address_or_none(ext.get("masterAddr", ""))
        if found is None:
            self.is_online = self.is_online and not self._leaves
            return
        self._follow(found, address_or_none(ext.get("haServerAddr", ""), found[0]))
        self.is_online, self.is_offered, self.known_host = True, False, found[0]

    def offered(self, address: Address, ha_address: Address) -> None:
        """Follow this one, which is not registered yet."""
        self._follow(address, ha_address)
        self.is_offered = not self.is_online

    def _follow(self, address: Address, ha_address: Address | None) -> None:
        """From the next connection on."""
        if address != self.address and self._peer is not None:
            self._peer.close()
        self.address = address
        if self._fixed is None and ha_address is not None:
            self.ha_address = ha_address

    def appoint(self, address: Address | None) -> None:
        """The controllers named this master, or none."""
        if address != self.address:
            self.close()
        self.address, self.ha_address = address, None
        self.is_online = address is not None

    def learned(self, text: str) -> None:
        """Its address by its own words, on the replication connection; `text` may lack the host."""
        if self.ha_address is not None:
            self.address = address_or_none(text, self.ha_address[0])

    def has_left(self) -> None:
        """Close the connection and forget the addresses; the log's connection goes on until it ends."""
        self.close()
        self.address, self.ha_address = None, self._fixed
        self.is_online = self.is_offered = False

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, timeout_s: float = ANSWER_S
    ) -> RemotingCommand:
        """The master's answer with code SUCCESS. OSError, TimeoutError, MasterError."""
        peer = await self._connected()
        answer = await peer.ask(RemotingCommand.request(code, ext or {}, body), timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise MasterError(
                answer.code, f"the master refused request {code} with {answer.code}: {answer.remark}"
            )
        return answer

    async def tell(self, code: int, ext: Mapping[str, str]) -> None:
        """Send a request that is not answered. OSError, TimeoutError."""
        peer = await self._connected()
        peer.oneway(RemotingCommand.request(code, dict(ext), oneway=True))

    async def compacted(self, topic: str, queue_id: int, offset: int) -> tuple[bytes, int] | None:
        """Messages of a compaction topic from an offset on, and the offset after them; None: there is none. OSError;
        PermissionError: our user may not read the topic."""
        ext = COMPACTED_PULL | {"topic": topic, "queueId": str(queue_id), "queueOffset": str(offset)}
        try:
            answer = await self.ask(RequestCode.PULL_MESSAGE, ext)
        except MasterError as error:
            if error.code in NOTHING_THERE:
                return None
            is_refused = error.code == ResponseCode.NO_PERMISSION
            raise (PermissionError if is_refused else ConnectionError)(str(error)) from None
        return answer.body, answer.integer("nextBeginOffset")

    async def log_range(self) -> LogRange:
        """OSError, TimeoutError, MasterError: also while its store still starts."""
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            table = json_fields.members(orjson.loads(answer.body).get("table"), "table")
            begin, end = (int(str(table[name])) for name in ("commitLogMinOffset", "commitLogMaxOffset"))
        except (ValueError, KeyError, AttributeError) as error:
            raise MasterError(0, f"the master's runtime info is malformed: {error}") from None
        return LogRange(max(begin, 0), end)

    def replication_address(self, *, knows_wire: bool = False) -> Address:
        """ConnectionError: not known. `knows_wire`: it speaks FireArrow's, which needs no other address."""
        if self.address is None and not (knows_wire and self.ha_address is not None):
            raise ConnectionError(NO_ADDRESS)
        if self.ha_address is None:
            raise ConnectionError(
                "the master does not replicate: its name server knows no haServerAddr of it"
            )
        return self.ha_address

    async def has_record(self, offset: int, record: bytes) -> bool:
        """Whether the master has these bytes there. OSError, TimeoutError, MasterError."""
        found = await self._record_sum(offset)
        return await self._record_at(offset) == record if found is None else found == record_sum(record)

    async def _record_sum(self, offset: int) -> str | None:
        """None: the master is not a FireArrow broker."""
        try:
            answer = await self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, {RECORD_OFFSET: str(offset)})
        except MasterError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return answer.ext.get(RECORD_SUM)

    async def _record_at(self, offset: int) -> bytes | None:
        """The record's bytes; None if the master has no record there."""
        try:
            return (await self.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})).body
        except MasterError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def _connected(self) -> Peer:
        async with self._connecting:
            address = self.address
            if address is None:
                raise ConnectionError(NO_ADDRESS)
            if self._peer is None or self._peer.closed:
                async with asyncio.timeout(CONNECT_S):
                    peer = await self._connect(*address)
                if address != self.address:
                    peer.close()
                    raise ConnectionError("the master's address has changed")
                self._peer = peer
            return self._peer


def address_or_none(text: str, host: str = "") -> Address | None:
    """`host` completes an address without one."""
    try:
        return _address(f"{host}{text}" if text.startswith(":") else text)
    except StartError:
        return None


def _address(text: str) -> Address:
    try:
        found = addresses(text)
    except StartError:  # it names another setting
        found = []
    if len(found) != 1:
        raise StartError(f"haMasterAddress must be host:port, not {text[:80]!r}")
    return found[0]
