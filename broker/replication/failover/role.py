"""BrokerRole: what a store remembers of its role: that it was promoted, or fenced because another one was.

A broker changes its role by starting again: `effective` gives the options of a start by what the store states. That it
states it is the one step that counts: a promotion begins its epoch where the log ends when the store is opened next,
before anything is written to it, so a crash leaves either a slave or a master with its epoch. Loop thread.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from firearrow._native.store.files.errors import StoreError
from firearrow._native.store.store_folder import StoreFolder
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.replication.failover.rebuild import Kept, set_aside
from firearrow.broker.replication.log.epoch_file import (
    EPOCH_JUMP_MAX,
    EPOCH_MAX,
    Epoch,
    EpochFile,
    may_follow,
    next_epoch,
)
from firearrow.broker.replication.log.pair_identity import (
    ASYNC_MASTER,
    PairIdentity,
    RoleKind,
    StoredRole,
    stored_role,
)

log = logging.getLogger("firearrow.replication")

CONFIG_FOLDER = "config"
HA_PORT_GAP = 1
FENCED_ID = 1
"""The brokerId of a fenced broker that is configured as a master; it registers with no name server."""


class BrokerRole:
    """Reads the role; the store may still be in use by another process. StartError: the file is damaged."""

    def __init__(self, store_root: str) -> None:
        self._root = Path(store_root)
        self._stored = stored_role(self._root / CONFIG_FOLDER)
        self._identity: PairIdentity | None = None
        self._epochs: EpochFile | None = None
        self._own_role = ""
        """The role of this start, if that is a master's."""
        self._refuse_writes: Callable[[str], None] = lambda why: None
        self._restart: Callable[[str], None] = lambda why: None
        self.fenced = ""
        """Why this broker takes no writes although its configuration states that it is a master; empty: it is not
        so."""
        self.begins = False
        """This start is the first one after the promotion."""

    # ---- before the start ----

    def effective(self, options: Options) -> Options:
        """The options that this store is to be started with."""
        options = self._effective(options)
        self._own_role = "" if options.is_slave else options.broker_role
        return options

    def _effective(self, options: Options) -> Options:
        kind, epoch, master_role = self._stored
        if kind is RoleKind.PROMOTED:
            if options.is_slave:
                log.warning(
                    "this store was promoted to a master with epoch %d, so brokerRole=SLAVE and brokerId=%d of the "
                    "configuration have no effect: set brokerRole=%s and brokerId=0",
                    epoch,
                    options.broker_id,
                    master_role,
                )
                return replace(
                    options, broker_role=master_role, broker_id=0, ha_port=_replication_port(options)
                )
            return replace(options, broker_id=0)
        if kind is RoleKind.FENCED and not options.is_slave:
            self.fenced = (
                f"another broker of this brokerName was promoted to the master with epoch {epoch}: start this one with "
                "brokerRole=SLAVE and a brokerId above 0, or promote it with `firearrow promote`"
            )
            log.error("this broker takes no writes: %s", self.fenced)
            return replace(options, broker_role="SLAVE", broker_id=FENCED_ID)
        return options

    # ---- the start ----

    def rebuild(self, options: Options) -> None:
        """Before the store is opened: set its log aside if that is asked for. StartError."""
        if self._stored.kind is not RoleKind.REBUILDING:
            return
        try:
            with locked(options.store_root):
                kept = set_aside(self._root, options.commitlog_path)
                self._store(StoredRole(master_role=self.master_role))
        except OSError as error:
            raise StartError(
                f"the log of {self._root} cannot be set aside ({error.filename}: {error.strerror or error}): set the "
                "permissions of the store, or move the log away and start again"
            ) from None
        except StoreError as error:
            raise StartError(str(error)) from None
        log.info("this slave starts again with an empty log; %s", kept.text)

    def open(self, end: int, *, is_slave: bool) -> None:
        """The store is ours now, and its log ends at `end`: begin the epoch of a promotion. A slave may know epochs of
        its master's that its log has not reached. StartError."""
        try:
            self._epochs = EpochFile(self._root)
            if not is_slave:
                self._epochs.truncate(end + 1)
            kind, epoch, _ = self._stored
            if kind is RoleKind.PROMOTED and self._epochs.last < epoch:
                self._epochs.promote(epoch, end)
                self.begins = True
                log.info("this broker is the master of epoch %d, from %d on", epoch, end)
        except OSError as error:
            raise StartError(
                f"the role of the store {self._root} cannot be written ({error.strerror or error}): free disk space, "
                "or set its permissions"
            ) from None

    def wire(self, refuse_writes: Callable[[str], None], restart: Callable[[str], None]) -> None:
        """`refuse_writes(why)`: from now on no write is stored or answered as if it were; `restart(why)`: the broker
        is to start again."""
        self._refuse_writes = refuse_writes
        self._restart = restart

    # ---- while it runs ----

    @property
    def is_fenced(self) -> bool:
        return self._stored.kind is RoleKind.FENCED

    @property
    def epochs(self) -> EpochFile:
        """Of the open store."""
        assert self._epochs is not None
        return self._epochs

    @property
    def identity(self) -> PairIdentity:
        """Of the open store; its file is made when it is used first. StartError, OSError."""
        if self._identity is None:
            self._identity = PairIdentity(self._root / CONFIG_FOLDER)
        return self._identity

    @property
    def epoch(self) -> int:
        """The newest one that this store knows; 0: it was never a replica with epochs."""
        return max(self.epochs.last, self._stored.epoch)

    def on_joined(self, epoch: int, master_role: str = "") -> None:
        """This slave has joined the master of `epoch`, with this role if that is known. One that was fenced by it, or
        by an older one, is a slave like others from now on; until then its log may lack what the new master has taken.
        OSError: it stays fenced."""
        master_role = master_role or self.master_role
        if self.is_fenced and epoch >= self._stored.epoch:
            self._store(StoredRole(master_role=master_role))
        elif master_role:
            self.record_role(master_role)

    @property
    def master_role(self) -> str:
        """Of the last master that this store knows; empty: none has reported it."""
        return self._stored.master_role

    def record_role(self, master_role: str) -> None:
        """The master that this slave follows has this role. OSError."""
        if self._stored.kind is RoleKind.CONFIGURED:
            self._store(StoredRole(master_role=master_role))

    def promote(self, epoch: int, master_role: str) -> None:
        """The next start is a master's; on the disk when this returns. OSError: nothing has changed."""
        self._store(StoredRole(RoleKind.PROMOTED, epoch, master_role))

    def ask_for_rebuild(self) -> None:
        """The next start begins with an empty log; on the disk when this returns. OSError: nothing has changed."""
        self._store(StoredRole(RoleKind.REBUILDING, master_role=self.master_role))

    def fence(self, epoch: int, why: str) -> None:
        """Another broker is the master since `epoch`: take no more writes, and start again as a slave, or fenced. On
        the disk before it shows. OSError: it is not on the disk, so the broker does not start again."""
        if epoch <= self.epoch:
            return
        text = f"the broker is fenced: {why}"
        try:
            self._store(StoredRole(RoleKind.FENCED, epoch, self._own_role or self.master_role))
        except OSError as error:
            log.critical(
                "%s; this could not be written to the disk (%s): stop the broker and start it with brokerRole=SLAVE",
                text,
                error.strerror or error,
            )
            self._refuse_writes(text)
            raise
        log.error("%s", text)
        self._refuse_writes(text)
        self._restart(text)

    def _store(self, role: StoredRole) -> None:
        if role == self._stored:
            return
        self.identity.set_role(role)
        self._stored = role


def _replication_port(options: Options) -> int:
    """Where slaves copy the log of a broker that was one; 0: of no port that is known before it listens."""
    return options.ha_port or (options.listen_port + HA_PORT_GAP if options.listen_port else 0)


@contextmanager
def locked(store_root: str) -> Iterator[None]:
    """Hold the lock of a store that is not open. StoreError: it is in use, or the folder is not a store."""
    folder = StoreFolder(store_root)
    try:
        yield
    finally:
        folder.unlock()


def lacks_newer(what: str, epoch: int) -> str:
    """Why this broker or store, which was fenced by the epoch, is not promoted."""
    return (
        f"{what} was fenced by epoch {epoch}, and lacks what the master takes since then: start it with "
        "brokerRole=SLAVE and promote it once it is in sync, or add --force and lose that"
    )


def promote_stopped(store_root: str, master_role: str = "", *, force: bool = False) -> StoredRole:
    """The next start of a store, which the caller has locked, is a master's; its epoch begins where the log ends then.
    Without `master_role` it has that of the last master, ASYNC_MASTER if it does not know that. StartError: it is one
    already, is to start again with an empty log, or was fenced and is not forced; OSError."""
    identity, epochs = PairIdentity(Path(store_root, CONFIG_FOLDER)), EpochFile(store_root)
    if identity.role.kind is RoleKind.PROMOTED:
        raise StartError(f"{store_root} is promoted already, with epoch {identity.role.epoch}: start it")
    if identity.role.kind is RoleKind.REBUILDING:
        raise StartError(
            f"{store_root} is to start again with an empty log, as `firearrow replica rebuild` asked for: start it "
            "with brokerRole=SLAVE and promote it once it is in sync"
        )
    if identity.role.kind is RoleKind.FENCED and not force:
        raise StartError(lacks_newer(store_root, identity.role.epoch))
    try:
        epoch = next_epoch(max(epochs.last, identity.role.epoch))
    except ValueError as error:
        raise StartError(str(error)) from None
    promoted = StoredRole(RoleKind.PROMOTED, epoch, master_role or identity.role.master_role or ASYNC_MASTER)
    identity.set_role(promoted)
    return promoted


class EpochReset(NamedTuple):
    """`before` and `after`: the newest epoch; `was_fenced`: the next start has the role of the configuration."""

    before: int
    after: int
    was_fenced: bool


def reset_epoch(store_root: str) -> EpochReset:
    """In a store, which the caller has locked: forget epochs that no promotion can have had, and that the store was
    fenced. StartError, OSError."""
    identity, epochs = PairIdentity(Path(store_root, CONFIG_FOLDER)), EpochFile(store_root)
    role, before = identity.role, max(epochs.last, identity.role.epoch)
    newest = 0
    kept: list[Epoch] = []
    for entry in epochs.entries:
        if (kept and not may_follow(entry.number, newest)) or entry.number > EPOCH_MAX - EPOCH_JUMP_MAX:
            break
        kept.append(entry)
        newest = entry.number
    epochs.replace(kept)
    if role.kind is RoleKind.FENCED:
        identity.set_role(StoredRole(master_role=role.master_role))
    elif role.kind is RoleKind.PROMOTED and role.epoch > newest and not may_follow(role.epoch, newest):
        identity.set_role(role._replace(epoch=newest + 1))
    return EpochReset(before, max(newest, identity.role.epoch), role.kind is RoleKind.FENCED)


def rebuild_stopped(store_root: str) -> Kept:
    """Set the log of a store aside, which the caller has locked, so that its next start copies that of the master.
    StartError, OSError."""
    identity = PairIdentity(Path(store_root, CONFIG_FOLDER))
    if identity.role.kind is RoleKind.PROMOTED:
        raise StartError(
            f"{store_root} is a master's, promoted with epoch {identity.role.epoch}: nothing was changed"
        )
    identity.set_role(StoredRole(RoleKind.REBUILDING, master_role=identity.role.master_role))
    kept = set_aside(Path(store_root))
    identity.set_role(StoredRole(master_role=identity.role.master_role))
    return kept
