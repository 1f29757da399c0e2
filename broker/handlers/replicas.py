"""The state of replication (GET_BROKER_HA_STATUS 907), from where a slave copies (EXCHANGE_BROKER_HA_INFO 906), and who
has the smallest id (NOTIFY_MIN_BROKER_ID_CHANGE 905).

Loop thread.
"""

from collections.abc import Callable

import orjson

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Peer, Routes, with_host
from firearrow.broker.replication.log.record_sums import RECORD_OFFSET, RECORD_SUM, RecordSums
from firearrow.broker.replication.master import HAService
from firearrow.broker.replication.wires.firearrow.handshake import (
    LATEST,
    LATEST_MEMBER,
    VERSION,
    VERSION_MEMBER,
)
from firearrow.broker.tables.registration import BrokerIdentity

CLIENT = (
    "lastReadTimestamp",
    "lastWriteTimestamp",
    "masterFlushOffset",
    "maxOffset",
    "transferredByteInSecond",
)


class ReplicasHandler:
    """`master` None: nothing is replicated. `other_master()`: address of another one with our epoch; empty: none.
    `write_fault()`: why this master takes no sends; empty: it does. `registers()`: no name server has it yet, and none
    has refused it."""

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        master: HAService | None,
        other_master: Callable[[], str],
        write_fault: Callable[[], str],
        registers: Callable[[], bool],
    ) -> None:
        self._store = store
        self._record_sums = RecordSums(store)
        self._identity = identity
        self._master = master
        self._other_master = other_master
        self._write_fault = write_fault
        self._registers = registers

    def routes(self) -> Routes:
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.min_changed,
            RequestCode.FORGET_REPLICA: self.forget,
        }

    def min_changed(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """A master, and a slave that does not act, have nothing to do (enableSlaveActingMaster)."""
        return request.answer()

    def exchange(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Report to a slave from where it copies, and whether a record is the same; what a slave would take from the
        request, a master does not need."""
        if self._master is None or "masterHaAddress" in request.ext:
            return request.answer()
        versions = {VERSION_MEMBER: str(VERSION), LATEST_MEMBER: str(LATEST)}
        ext = {
            **(versions if self._master.serves_firearrow else {}),
            "masterAddress": with_host(self._identity.address(""), peer),
            "masterFlushOffset": str(self._master.start_offset),
            "masterHaAddress": with_host(self._identity.ha_address(""), peer),
        }
        if RECORD_OFFSET in request.ext:
            return self._with_record_sum(request, request.integer(RECORD_OFFSET), ext, peer)
        return request.answer(ext=ext)

    async def _with_record_sum(
        self, request: RemotingCommand, offset: int, ext: dict[str, str], peer: Peer
    ) -> RemotingCommand:
        return request.answer(ext={**ext, RECORD_SUM: await self._record_sums.of(offset, peer)})

    def status(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Ours are `refused`: slaves that get nothing, and why; `members`: those that are expected, `neverJoined`: how
        many more; `refuses`: why sends are refused; `registers`: clients do not find it yet; and `otherMaster`."""
        slaves = [] if self._master is None else self._master.registry.connections()
        body = {
            "haClientRuntimeInfo": dict.fromkeys(CLIENT, 0),
            "haConnectionInfo": slaves,
            "inSyncSlaveNums": sum(slave["inSync"] is True for slave in slaves),
            "master": True,
            "masterCommitLogMaxOffset": self._store.written,
        }
        if self._master is not None:
            body |= {
                "members": self._master.registry.members(),
                "neverJoined": self._master.registry.never_joined,
            }
            if refused := self._master.registry.refused():
                body["refused"] = refused
        if fault := self._write_fault():
            body["refuses"] = fault
        if other := self._other_master():
            body["otherMaster"] = other
        if self._registers():
            body["registers"] = True
        return request.answer(body=orjson.dumps(body))

    def forget(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`name`: of a slave that is missing, which is not expected any more; `all`: every one that is, the answer is
        how many; neither: those of which nothing is known."""
        if self._master is None:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                "this broker is not a master that replicates: ask the master of its name",
            )
        if request.boolean_or("all", False):
            count = self._master.registry.expected.forget_missing()
            if count or not self._master.registry.never_joined:
                return request.answer(body=orjson.dumps({"forgotten": count}))
        if fault := self._master.registry.forget(request.text_or("name", "")):
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        return request.answer()
