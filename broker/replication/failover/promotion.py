"""Promotion: PROMOTE_BROKER 30015, of FireArrow alone: makes a slave the master; REBUILD_REPLICA 30017: one
starts over with an empty log. Loop thread.

If its master is FireArrow's and answers, nothing is lost, in this order: the slave has nearly all; the master stops
writing to its log; the slave copies what is left, the tables last; the master is fenced on its disk; the slave is
promoted on its own. A failure before the last but one leaves the master as it was, one between the two leaves no
master, and either can be promoted; there are never two. An Apache master is made to refuse sends for a while by a
change of its configuration, and has to be stopped by its operator.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Address, Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.failover.fencing import CANCEL, CHALLENGE, FENCE, PREPARE, proof_of
from firearrow.broker.replication.failover.master_role import role_of
from firearrow.broker.replication.failover.member_group import Members
from firearrow.broker.replication.failover.rebuild import DAMAGED
from firearrow.broker.replication.failover.role import BrokerRole, lacks_newer
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, may_follow, next_epoch
from firearrow.broker.replication.log.pair_identity import ASYNC_MASTER, MASTER_ROLES
from firearrow.broker.replication.session.master_api import Master, MasterError, address_or_none
from firearrow.broker.replication.session.slave_status import State
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.routes import MASTER_ID

log = logging.getLogger("firearrow.replication")

NEAR_S, REST_S = 20.0, 15.0
"""How long to wait until the slave has nearly all, and then the rest."""
NEAR_BYTES = 1 << 20
POLL_S = 0.02
FENCE_TRIES, CANCEL_TRIES, AGAIN_S = 5, 3, 1.0
REBUILT = (State.DIVERGED, State.BEHIND, State.CORRUPTED)
APACHE_REFUSES_MS = 600_000
APACHE_STOPPED_S = 1.0
"""An Apache master whose log does not grow for so long has no sends in flight."""


class MasterState(NamedTuple):
    """What a master answers to FENCE_BROKER. `end`: of its log."""

    epoch: int
    end: int


class PromotedSlave(Protocol):
    """What a promotion needs of the slave (broker/replication/slave)."""

    @property
    def master(self) -> Master: ...
    @property
    def state(self) -> tuple[State, str]:
        """And its reason."""

    async def ask_for_master(self) -> None:
        """Ask name servers who the master is now."""

    async def end_at(self, address: Address) -> int:
        """Where the log of another slave ends. OSError, MasterError."""

    async def copy_tables(self) -> None: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...


class Promotion:
    """`slave` None: this broker is a master."""

    def __init__(self, context: BrokerContext, role: BrokerRole, slave: PromotedSlave | None) -> None:
        self._context = context
        self._role = role
        self._slave = slave
        self._running = False
        self.others: Callable[[], Awaitable[Members]] = _no_members
        """The brokers of our name, as a name server knows them. OSError, ValueError."""

    def routes(self) -> Routes:
        return {RequestCode.PROMOTE_BROKER: self.promote, RequestCode.REBUILD_REPLICA: self.rebuild}

    async def promote(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`brokerRole`: of the master that it becomes; without it, that of its old master. `force`: also if its master
        answers and takes writes. The answer: epoch, the log's end, where it begins, its role, whether that was asked
        for or is the old master's, and what is to be done with the old master. The broker starts again after it."""
        slave, master_role = self._slave, request.text_or("brokerRole", "")
        force = request.boolean_or("force", False)
        if master_role not in ("", *MASTER_ROLES):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"brokerRole must be {' or '.join(MASTER_ROLES)}")
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

    def rebuild(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The answer: how large the log is that is set aside, and below which folder. The broker starts again after
        it."""
        state, reason = (None, "it is a master") if self._slave is None else self._slave.state
        if state not in REBUILT:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"this broker's log is not set aside ({reason or state}): only a slave whose log its master cannot "
                "continue starts again",
            )
        store = self._context.store
        try:
            self._role.ask_for_rebuild()
        except OSError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"it could not be written to the disk: {error.strerror or error}"
            ) from None
        self._context.restart(Restart("the slave starts again with an empty log"))
        body = {"logBytes": store.written - store.min_physical, "folder": f"{store.root}/{DAMAGED}"}
        return request.answer(body=orjson.dumps(body))

    async def _promote(self, slave: PromotedSlave, master_role: str, force: bool) -> dict[str, object]:
        epoch, old_master = self._role.epoch, ""
        if self._role.is_fenced and slave.state[0] is not State.FOLLOWING and not force:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, lacks_newer("this broker", epoch))
        if not self._role.fenced:  # such a broker registers nowhere
            await slave.ask_for_master()
        if await _answers(slave.master):
            master_role = master_role or await _role_of(slave.master)
            try:
                epoch, old_master = await self._take_over(slave, force)
            except Refusal as refusal:
                if not force:
                    raise
                log.error("promoted by force: %s", refusal.remark)
                old_master = (
                    f"its old master {slave.master.text} may still take writes, which are lost: stop it now"
                )
        elif not force:
            await self._check_other_slaves(slave)
        epoch = _next(epoch)
        master_role = master_role or self._role.master_role
        await slave.stop()
        self._context.write_batch.commit()
        try:
            self._role.promote(epoch, master_role or ASYNC_MASTER)
        except OSError as error:
            slave.start()
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"the promotion could not be written to the disk: {error.strerror}"
            ) from None
        end = self._context.store.written
        self._context.restart(Restart(f"promoted to the master of epoch {epoch}"))
        return {
            "epoch": epoch,
            "end": end,
            "role": master_role or ASYNC_MASTER,
            "roleKnown": bool(master_role),
            "oldMaster": old_master,
        }

    async def _check_other_slaves(self, slave: PromotedSlave) -> None:
        """Refusal: one has more of the log than we have: perhaps what its master has answered; or one has become the
        master. Those that do not answer are passed over."""
        ours, end = self._context.config.options.broker_id, self._context.store.written
        try:
            others = await self.others()
        except (OSError, ValueError) as error:
            return log.info("no name server reports the other slaves: %s", error)
        for number, text in others.items():
            address = address_or_none(text)
            if number == ours or address in (None, slave.master.address):
                continue
            try:
                more = await slave.end_at(address) - end
            except (OSError, MasterError) as error:
                log.info("the slave %s did not report how much of the log it has: %s", text, error)
                continue
            if number == MASTER_ID:
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"{text} has just become the master: promote again if this slave is to take over from it",
                )
            if more > 0:
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the slave {text} has {more} bytes more of the log than this one: promote that one, or add "
                    "--force and lose them",
                )
        return None

    # ---- a master that answers ----

    async def _take_over(self, slave: PromotedSlave, force: bool) -> tuple[int, str]:
        """The newest epoch so far, and what is to be done with the old master, which takes no writes now. Refusal:
        it may take some; with `force`, it takes none for a while."""
        master = slave.master
        try:
            await self._copied(slave, (await master.log_range()).end, NEAR_S, NEAR_BYTES)
        except (OSError, MasterError) as error:
            raise _still_writing(master, error) from None
        try:
            state = await self._ask(master, PREPARE)
            await self._copied(slave, state.end, REST_S)
            await slave.copy_tables()
            epoch = self._newest(state)
        except (
            BaseException
        ) as error:  # also a lost answer, and cancellation: the master may have stopped writing
            if isinstance(error, MasterError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return await self._take_over_apache(slave)
            is_known = isinstance(error, (OSError, MasterError))
            if not (force and (is_known or isinstance(error, Refusal))):
                await self._give_back(master)
            if is_known:
                raise _still_writing(master, error) from None
            raise
        await self._fence(master, _next(epoch), state.end)
        return epoch, ""

    def _newest(self, state: MasterState) -> int:
        """The newest epoch of the two brokers. MasterError: the master's cannot be."""
        ours = self._role.epoch
        if state.epoch > ours and not may_follow(state.epoch, ours):
            raise MasterError(
                0, f"its epoch {state.epoch} is more than {EPOCH_JUMP_MAX} after {ours}, that of this broker"
            )
        return max(state.epoch, ours)

    async def _copied(self, slave: PromotedSlave, end: int, within_s: float, but: int = 0) -> None:
        """Wait until the slave has the log up to `end`, but for some bytes. Refusal."""
        loop, store = self._context.loop, self._context.store
        deadline = loop.time() + within_s
        while store.written < end - but:
            if loop.time() >= deadline:
                state, reason = slave.state
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the slave is {end - store.written} bytes behind its master ({state}{reason and f': {reason}'}): "
                    "wait until `firearrow replica status` shows that it is in sync",
                )
            await asyncio.sleep(POLL_S)

    async def _fence(self, master: Master, epoch: int, end: int) -> None:
        """Refusal: whether the master is fenced is not known, so no slave is promoted, or it refuses, and stays the
        master."""
        error: Exception | None = None
        for _ in range(FENCE_TRIES):
            try:
                await self._ask(master, FENCE, epoch=str(epoch), end=str(end))
                return
            except MasterError as refused:
                if error is None:
                    await self._give_back(master)
                raise _still_writing(master, refused) from None
            except OSError as lost:
                error = lost
                await asyncio.sleep(AGAIN_S)
        raise _still_writing(master, error) from None

    async def _take_over_apache(self, slave: PromotedSlave) -> tuple[int, str]:
        """It refuses sends from now on, but its own services may still write."""
        master = slave.master
        refuses_until = int(time.time() * 1000) + APACHE_REFUSES_MS
        body = f"startAcceptSendRequestTimeStamp={refuses_until}\n".encode()
        try:
            await master.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            await self._copied_all(slave)
            await slave.copy_tables()
        except (OSError, MasterError) as error:
            raise _still_writing(master, error) from None
        minutes = APACHE_REFUSES_MS // 60_000
        return self._role.epoch, (
            f"its old master {master.text} is Apache's and refuses sends for {minutes} minutes: stop it now, and "
            "start it with brokerRole=SLAVE and a brokerId above 0"
        )

    async def _copied_all(self, slave: PromotedSlave) -> None:
        """Wait until the slave has all, and the master's log does not grow. Refusal, OSError, MasterError."""
        loop = self._context.loop
        deadline, end, since = loop.time() + REST_S, -1, loop.time()
        while loop.time() - since < APACHE_STOPPED_S and loop.time() < deadline:
            found = (await slave.master.log_range()).end
            if found != end:
                end, since = found, loop.time()
            await asyncio.sleep(10 * POLL_S)
        await self._copied(slave, end, REST_S)

    async def _ask(self, master: Master, step: str, **ext: str) -> MasterState:
        """OSError, MasterError."""
        fields, secret = {"step": step, **ext}, self._context.config.options.ha_secret.encode()
        try:
            if secret:
                answer = await master.ask(RequestCode.FENCE_BROKER, {"step": CHALLENGE})
                nonce = json_fields.text(
                    json_fields.members(orjson.loads(answer.body), "the answer"), "nonce"
                )
                fields["proof"] = proof_of(secret, nonce, fields)
            answer = await master.ask(RequestCode.FENCE_BROKER, fields)
            of = json_fields.members(orjson.loads(answer.body), "the answer")
            return MasterState(
                json_fields.number(of, "epoch"), json_fields.number(of, "end", high=json_fields.LONG_MAX)
            )
        except ValueError as error:
            raise MasterError(0, f"the master's answer is malformed: {error}") from None

    async def _give_back(self, master: Master) -> None:
        """A master that has not stopped writing ignores it, and so does one that is fenced. One that gets the request
        to stop after this one starts again by itself."""
        error: Exception | None = None
        for again in range(CANCEL_TRIES):
            if again:
                await asyncio.sleep(AGAIN_S)
            try:
                await self._ask(master, CANCEL)
                return
            except MasterError as refused:
                error = refused
                break
            except OSError as lost:
                error = lost
        log.info("%s was not notified that it stays the master, and will notice: %s", master.text, error)


async def _no_members() -> Members:
    return {}


async def _answers(master: Master) -> bool:
    """Whether there is still a master."""
    if master.address is None:
        return False
    try:
        await master.log_range()
    except OSError:
        return False
    except MasterError:
        pass
    return True


async def _role_of(master: Master) -> str:
    """Empty: it does not report it."""
    try:
        return await role_of(master)
    except (OSError, MasterError):
        return ""


def _next(epoch: int) -> int:
    """Refusal: there is no epoch after this one."""
    try:
        return next_epoch(epoch)
    except ValueError as error:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from None


def _still_writing(master: Master, error: BaseException | None) -> Refusal:
    return Refusal(
        ResponseCode.ILLEGAL_OPERATION,
        f"its master {master.text} answers, but may still take writes ({error}): stop it first, or add --force",
    )
