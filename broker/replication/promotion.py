"""Promotion: PROMOTE_BROKER 30015, of FireArrow alone: makes a slave the master of its pair. Loop thread."""

import logging

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.pair_identity import ASYNC_MASTER, SYNC_MASTER
from firearrow.broker.replication.role import PairRole
from firearrow.broker.replication.slave import Slave
from firearrow.broker.replication.slave_master import MasterError

log = logging.getLogger("firearrow.replication")


class Promotion:
    """`slave` None: this broker is a master."""

    def __init__(self, context: BrokerContext, role: PairRole, slave: Slave | None) -> None:
        self._context = context
        self._role = role
        self._slave = slave
        self._running = False

    def routes(self) -> Routes:
        return {RequestCode.PROMOTE_BROKER: self.promote}

    async def promote(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`brokerRole`: of the master that it becomes. `force`: although its master answers. The answer: epoch and
        the log's end, where it begins. The broker starts again after it."""
        slave, master_role = self._slave, request.text_or("brokerRole", ASYNC_MASTER)
        force = request.boolean_or("force", False)
        if master_role not in (ASYNC_MASTER, SYNC_MASTER):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"brokerRole must be {ASYNC_MASTER} or {SYNC_MASTER}"
            )
        if slave is None:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION, "this broker is a master already: promote its slave"
            )
        if self._running:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this broker is being promoted already")
        self._running = True
        try:
            return request.answer(body=orjson.dumps(await self._promote(slave, master_role, force)))
        finally:
            self._running = False

    async def _promote(self, slave: Slave, master_role: str, force: bool) -> dict[str, object]:
        if not force and await self._answers(slave):
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"its master {slave.master.text} answers: stop it first, or add --force",
            )
        epoch = self._role.epoch + 1
        await slave.stop()
        self._context.write_batch.commit()
        try:
            self._role.promote(epoch, master_role)
        except OSError as error:
            slave.start()
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"the promotion could not be written to the disk: {error.strerror}"
            ) from None
        end = self._context.store.written
        self._context.restart(Restart(f"promoted to the master of epoch {epoch}"))
        return {"epoch": epoch, "end": end, "role": master_role, "oldMaster": ""}

    async def _answers(self, slave: Slave) -> bool:
        """Whether there is still a master."""
        if slave.master.address is None:
            return False
        try:
            await slave.master.log_range()
        except OSError:
            return False
        except MasterError:
            pass
        return True
