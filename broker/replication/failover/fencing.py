"""Fencing: FENCE_BROKER 30016, of FireArrow alone: a master gives its place to a slave that is promoted.

Two steps, each asked for by the slave. `prepare`: nothing is written to the log any more, so that it has an end up to
which the slave can copy it. `fence`: the broker is no longer the master, on the disk before it is answered. If the
second does not come within LEASE_S, the broker starts again as the master that it still is. Loop thread.

Who asks proves that it knows haSecret: `challenge` gives the connection a nonce, which the proof of its next step
covers. Without haSecret, and without users, whose right was checked, only this machine may ask.
"""

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Iterable, Mapping

import orjson

from firearrow._native.store.message_store import WriteRefusal
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Handler, Peer, Routes, is_loopback
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.failover.role import BrokerRole
from firearrow.broker.replication.failover.slave_requests import REFUSALS
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, may_follow

log = logging.getLogger("firearrow.replication")

CHANGES = frozenset({*REFUSALS, RequestCode.UPDATE_CONSUMER_OFFSET})
"""What the slave that takes over would not learn of."""
LEASE_S = 30.0
CHALLENGE, PREPARE, FENCE, CANCEL = "challenge", "prepare", "fence", "cancel"
NONCE_BYTES = 16
CONTEXT = b"FireArrow fence\0"


def proof_of(secret: bytes, nonce: str, ext: Mapping[str, str]) -> str:
    """HMAC-SHA256 over the nonce, the step, and the epoch and end of `fence`, as hexadecimal digits."""
    facts = (nonce, *(ext.get(name, "") for name in ("step", "epoch", "end")))
    return hmac.new(secret, CONTEXT + "\0".join(facts).encode(), hashlib.sha256).hexdigest()


class Fencing:
    """`is_master`: as this broker was started. `stop_services()`: ends deliveries, checks and all else that writes to
    the log by itself."""

    def __init__(
        self, context: BrokerContext, role: BrokerRole, *, is_master: bool, stop_services: Callable[[], None]
    ) -> None:
        self._context = context
        self._role = role
        self._is_master = is_master
        self._stop_services = stop_services
        self._lease: asyncio.TimerHandle | None = None
        self._nonces: dict[Peer, str] = {}
        """Of connections that asked for one; empty: it was used."""

    def routes(self) -> Routes:
        return {RequestCode.FENCE_BROKER: self.fence}

    def guarded(self, tables: Iterable[Routes]) -> list[Routes]:
        """These handlers, which change nothing any more once the broker gives its place to a slave."""
        return [
            {code: self._guarded(to) if code in CHANGES else to for code, to in table.items()}
            for table in tables
        ]

    def _guarded(self, handler: Handler) -> Handler:
        def guarded(request: RemotingCommand, peer: Peer) -> Answer:
            if why := self._context.store.write_refusal:
                text = f"service not available now. No writes: {why}."
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, text)  # clients try another broker
            return handler(request, peer)

        return guarded

    def fence(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`step`: `challenge`, `prepare`, `fence` or `cancel`. To fence, `epoch`: of the new master, and `end`: of the
        log that it has; without it, the operator has decided. `proof`: that it knows haSecret. The answer: this
        broker's epoch, the log's end; to `challenge` the nonce."""
        step = request.text("step")
        if step == CHALLENGE:
            return request.answer(body=orjson.dumps({"nonce": self._challenge(peer)}))
        self._check_right(request, peer)
        if step == PREPARE:
            self._prepare(peer)
        elif step == FENCE:
            self._fence(request.integer("epoch", 32), request.integer_or("end", -1), peer)
        elif step == CANCEL:
            self._cancel("the promotion of a slave was given up")
        else:
            steps = f"{CHALLENGE}, {PREPARE}, {FENCE} or {CANCEL}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"step must be {steps}")
        body = {"epoch": self._role.epoch, "end": self._context.store.written}
        return request.answer(body=orjson.dumps(body))

    def take_writes(self) -> None:
        """At the start: no name server knows of a newer master."""
        store = self._context.store
        if store.write_refusal is WriteRefusal.UNCERTAIN:
            store.write_refusal = None

    def _prepare(self, peer: Peer) -> None:
        self._check()
        context = self._context
        if self._lease is None:
            log.info("%s:%d is to become the master: this broker takes no writes meanwhile", *peer.remote)
            self._stop_services()
        else:
            self._lease.cancel()
        context.write_batch.commit()
        context.store.write_refusal = WriteRefusal.HANDOVER
        why = f"the slave that asked for it did not become the master within {LEASE_S:.0f} s"
        self._lease = context.loop.call_later(LEASE_S, self._cancel, why)

    def _fence(self, epoch: int, end: int, peer: Peer) -> None:
        if self._role.is_fenced and epoch <= self._role.epoch:
            return  # the answer was lost
        self._check()
        written = self._context.store.written
        if end >= 0 and (self._lease is None or end != written):
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the log has grown from {end} to {written}, for the promotion took too long: promote again",
            )
        if not may_follow(epoch, self._role.epoch):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"epoch {epoch} is not after {self._role.epoch}, that of this broker, or more than {EPOCH_JUMP_MAX} "
                "after it",
            )
        try:
            self._role.fence(epoch, "{}:{} was promoted to the master".format(*peer.remote))
        except OSError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"it could not be written to the disk: {error.strerror or error}"
            ) from None
        self._end_lease()

    def _challenge(self, peer: Peer) -> str:
        """A new nonce for the connection."""
        if peer not in self._nonces and not peer.closed:
            peer.on_close(self._closed)
        nonce = self._nonces[peer] = os.urandom(NONCE_BYTES).hex()
        return nonce

    def _closed(self, peer: Peer) -> None:
        self._nonces.pop(peer, None)

    def _check_right(self, request: RemotingCommand, peer: Peer) -> None:
        """Refusal: who asks is not a FireArrow broker."""
        options = self._context.config.options
        if options.ha_secret:
            nonce = self._nonces.get(peer, "")
            if nonce:
                self._nonces[peer] = ""
            wanted = proof_of(options.ha_secret.encode(), nonce, request.ext)
            if nonce and hmac.compare_digest(wanted.encode(), request.text_or("proof", "").encode()):
                return
            fault = "only a broker with the same haSecret may fence this broker: set it on both"
        elif options.authentication or options.plain_acl or is_loopback(peer.remote[0]):
            return
        else:
            fault = (
                "only brokers on this machine may fence it: set haSecret on both brokers, or require users"
            )
        log.warning("refused %s:%d: %s", *peer.remote, fault)
        raise Refusal(ResponseCode.NO_PERMISSION, fault)

    def _check(self) -> None:
        if not self._is_master:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "this broker is not a master")

    def _cancel(self, why: str) -> None:
        if self._lease is not None:
            self._end_lease()
            self._context.restart(Restart(f"{why}: this broker is the master again"))

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    def stop(self) -> None:
        self._end_lease()
