"""Controller mode: the connections to the controllers, which outlive a change of the role, and what one start of the
broker does under them. Loop thread.
"""

import asyncio
from functools import partial

import orjson

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign
from firearrow.broker.base import auth_options
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import tls_pairs
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.net.server import Server
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.replication.controller.client import ControllerClient, Role
from firearrow.broker.replication.controller.controlled_sync import ControlledSync
from firearrow.broker.replication.controller.follower import AppointedMaster
from firearrow.broker.replication.controller.requests import LogState, Members
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile
from firearrow.broker.services.registration import Registrar
from firearrow.broker.tables.registration import BrokerIdentity

STOP_S = 0.5
NO_END = (1 << 63) - 1
"""Of the newest epoch, as Apache has it."""


class ControllerConnections:
    """A client of the controllers with connections of its own. StartError."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: Options) -> None:
        self._tls = ServerTls(tls_pairs(options))
        self._server = Server(
            loop, idle_s=options.idle_s, frame_bytes_max=options.frame_bytes_max, tls=self._tls
        )
        inner = auth_options.inner_credentials(options) if options.authentication else None
        self._sign = None if inner is None else partial(sign, access_key=inner.name, secret=inner.password)
        self.client = ControllerClient(options, Clock(), self._connect)
        self._tls.start(loop)

    async def stop(self) -> None:
        await self.client.stop()
        self._tls.stop()
        await self._server.close(STOP_S)

    async def _connect(self, host: str, port: int) -> Peer:
        return await self._server.connect(host, port, self._sign)


def begin_start(
    client: ControllerClient, appointed: Role | None, epochs: EpochFile, store: MessageStore, *, killed: bool
) -> None:
    """Before this start writes to the log: begin the epoch of a master. `appointed`: the role of this start. `killed`:
    the broker did not stop cleanly before. StartError."""
    if client.was_killed is None:
        client.was_killed = killed
    if appointed is not None and appointed.is_master:
        try:
            _begin_epoch(client, epochs, store, appointed)
        except OSError as error:
            raise StartError(f"{epochs.path} cannot be written ({error}): free disk space") from error


def _begin_epoch(client: ControllerClient, epochs: EpochFile, store: MessageStore, role: Role) -> None:
    """Before the first write. StartError, OSError.

    A master that was killed and is still the master of its epoch may have lost what slaves have: the epoch begins
    again at the log's end, as Apache's does, so that they copy it again from the end of the one before. Without
    one they would have nothing in common; then FireArrow slaves compare their last record.
    """
    entries, last, end = epochs.entries, epochs.last, store.written
    if role.epoch < last:
        raise StartError(
            f"the controllers are in epoch {role.epoch}, this store in epoch {last}: they have forgotten this name; "
            "restore their data, or start brokers and controllers with empty stores"
        )
    if role.epoch > last:
        epochs.append(role.epoch, end)
    elif client.was_killed and len(entries) > 1 and entries[-1].start < end:
        epochs.replace((*entries[:-1], Epoch(last, end)))
    client.was_killed = False


class ControllerMode:
    """One start of the broker under controllers, after `begin_start`. `part`: what controllers change of the master,
    or of the slave, that this start is."""

    def __init__(
        self,
        client: ControllerClient,
        context: BrokerContext,
        epochs: EpochFile,
        part: ControlledSync | AppointedMaster,
        identity: BrokerIdentity,
        registrar: Registrar,
    ) -> None:
        self._client = client
        self._options = context.config.options
        self._store = context.store
        self._topics = context.tables.topics
        self._restart = context.restart
        self._epochs = epochs
        self._part = part
        self._identity = identity
        self._registrar = registrar
        self._is_admitted = False

    def routes(self) -> Routes:
        return {**self._client.routes(), RequestCode.PROMOTE_BROKER: self._refuse_promotion}

    def _refuse_promotion(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        raise Refusal(
            ResponseCode.ILLEGAL_OPERATION,
            "controllers decide who is the master: use mqadmin electMaster, with -b for this broker's number",
        )

    def epoch_cache(self) -> bytes:
        """The body of an answer to GET_BROKER_EPOCH_CACHE 1007."""
        entries = self._epochs.entries
        ends = [*(entry.start for entry in entries[1:]), NO_END]
        body = {
            "brokerId": 0 if isinstance(self._part, ControlledSync) else self._options.broker_id,
            "brokerName": self._options.broker_name,
            "clusterName": self._options.cluster_name,
            "epochList": [
                {"endOffset": end, "epoch": entry.number, "startOffset": entry.start}
                for entry, end in zip(entries, ends, strict=False)
            ],
            "maxOffset": self._store.written,
        }
        return orjson.dumps(body)

    # ---- running ----

    def start(self) -> None:
        """Everything else runs. Until the controllers have reported what this broker is, it registers nowhere, and as a
        slave it refuses sends."""
        self._client.attach(self)
        role = self._client.role
        if role is not None:
            self._apply(role)

    def stop(self) -> None:
        self._client.detach()

    def _apply(self, role: Role) -> None:
        options = self._options
        wanted = role.options()
        if wanted != {"broker_role": options.broker_role, "broker_id": options.broker_id}:
            what = "the master" if role.is_master else f"a slave of {role.address}"
            return self._restart(Restart(f"the controllers made it {what} in epoch {role.epoch}"))
        if isinstance(self._part, AppointedMaster):
            self._part.follow(role)
        else:
            self._topics.begin_epoch(role.epoch)
        if not self._is_admitted:
            self._is_admitted = True
            self._registrar.start()
        return None

    # ---- from the controllers' client ----

    def address(self, local: str) -> str:
        return self._identity.address(local)

    def log_state(self) -> LogState:
        return LogState(self._epochs.last, self._store.written, self._store.reader.confirmed)

    def take(self, role: Role) -> None:
        if role.is_master and isinstance(self._part, ControlledSync):
            try:
                _begin_epoch(self._client, self._epochs, self._store, role)
            except OSError as error:  # the next start tries again
                return self._restart(Restart(f"{self._epochs.path} cannot be written: {error}"))
            self._part.begin_epoch(role)
        return self._apply(role)

    def take_members(self, members: Members) -> None:
        if isinstance(self._part, ControlledSync):
            self._part.take_members(members)

    def status(self) -> dict[str, object]:
        return self._client.status()
