"""The role of a stopped store: made a master, or a slave that begins again. The caller holds its lock."""

from pathlib import Path

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow.broker.base.errors import StartError
from firearrow.broker.replication.epoch_file import EpochFile
from firearrow.broker.replication.pair_identity import PairIdentity, RoleKind, StoredRole
from firearrow.broker.replication.rebuild import Kept, set_aside


def promote(root: str, master_role: str) -> int:
    """The store's next start is a master's, whatever brokerRole says; returns its epoch, which begins where the log
    ends then. Raises StoreUnreadable, OSError."""
    try:
        identity, epochs = PairIdentity(Path(root, "config")), EpochFile(root)
    except StartError as error:
        raise StoreUnreadable(str(error)) from None
    if identity.role.kind is RoleKind.PROMOTED:
        raise StoreUnreadable(f"{root} is promoted already, with epoch {identity.role.epoch}: start it")
    epoch = max(epochs.last, identity.role.epoch) + 1
    identity.set_role(StoredRole(RoleKind.PROMOTED, epoch, master_role))
    return epoch


def rebuild(root: str) -> Kept:
    """Set the log aside, so that the next start copies the whole one of the master. Raises StoreUnreadable, OSError."""
    try:
        identity = PairIdentity(Path(root, "config"))
    except StartError as error:
        raise StoreUnreadable(str(error)) from None
    if identity.role.kind is RoleKind.PROMOTED:
        raise StoreUnreadable(
            f"{root} is a master's, promoted with epoch {identity.role.epoch}: nothing was changed"
        )
    identity.set_role(StoredRole(RoleKind.REBUILDING))
    kept = set_aside(Path(root))
    identity.set_role(StoredRole())
    return kept
