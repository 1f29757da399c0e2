"""PairIdentity: which pair a store belongs to, which node of it this is, and what became of its role;
`config/pairIdentity.json`.

A pair's id is made by its master when the first FireArrow slave joins, and taken over by each slave that begins with an
empty log; a log of another pair is refused by it. A node's id is that of one store: it distinguishes two connections of
one slave from two slaves. A store restored from a backup has the id of the backed-up node, until `separate_from`.

Each change is on the disk before the call returns. Loop thread.
"""

import json
import logging
import os
import re
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from firearrow._native.protocol import fastjson
from firearrow.broker.base.errors import StartError
from firearrow.broker.replication.log.epoch_file import EPOCH_MAX
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.replication")

FILE_NAME = "pairIdentity.json"
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
"""Of a store that belongs to no pair yet."""
HEX = re.compile(r"[0-9a-f]{32}")
MASTER_ROLES = ASYNC_MASTER, SYNC_MASTER = "ASYNC_MASTER", "SYNC_MASTER"


class RoleKind(StrEnum):
    """`CONFIGURED`: as brokerRole states. `PROMOTED`: a master, whatever it states. `FENCED`: no master any more.
    `REBUILDING`: a slave that is to start again with an empty log."""

    CONFIGURED = ""
    REBUILDING = "rebuilding"
    PROMOTED = "promoted"
    FENCED = "fenced"


class StoredRole(NamedTuple):
    """`epoch`: with which the store was promoted, or by which it was fenced. `master_role`: what a promoted broker is
    if its configuration states SLAVE; of others, what it would be: the role of the last master; empty: not known."""

    kind: RoleKind = RoleKind.CONFIGURED
    epoch: int = 0
    master_role: str = ""


class _Content(NamedTuple):
    """Of the file. `pair` and `node`: 16 bytes each."""

    pair: bytes = NO_ID
    node: bytes = NO_ID
    role: StoredRole = StoredRole()


def stored_role(config_folder: str | os.PathLike[str]) -> StoredRole:
    """What a store remembers of its role; nothing is written. StartError: the file is damaged or cannot be read."""
    return _stored(config_folder).role


def stored_pair(config_folder: str | os.PathLike[str]) -> bytes:
    """The id of the store's pair; NO_ID: none. Nothing is written. StartError: as `stored_role`."""
    return _stored(config_folder).pair


def _stored(config_folder: str | os.PathLike[str]) -> _Content:
    found = [_Content()]
    ConfigFile(Path(config_folder) / FILE_NAME, strict=True).load(lambda text: found.append(_parsed(text)))
    return found[-1]


def forget_promotion(config_folder: str | os.PathLike[str]) -> None:
    """In a copy of a store, which is not a second master. A damaged file stays as it is. OSError."""
    with suppress(StartError):
        if stored_role(config_folder).kind is RoleKind.PROMOTED:
            PairIdentity(config_folder).set_role(StoredRole())


class PairIdentity:
    """Loads the file, and makes the node's id if there is none yet. StartError: the file is damaged or cannot be
    read. OSError: it cannot be written."""

    def __init__(self, config_folder: str | os.PathLike[str]) -> None:
        self._file = ConfigFile(Path(config_folder) / FILE_NAME, strict=True)
        self._content = _Content()
        self._offered = _new_id()
        self._file.load(self._read)
        if self._content.node == NO_ID:
            self._write(self._content._replace(node=_new_id()))

    @property
    def pair(self) -> bytes:
        """16 bytes; NO_ID: none yet."""
        return self._content.pair

    @property
    def node(self) -> bytes:
        """16 bytes."""
        return self._content.node

    @property
    def role(self) -> StoredRole:
        return self._content.role

    def set_role(self, role: StoredRole) -> None:
        """OSError."""
        if role != self._content.role:
            self._write(self._content._replace(role=role))

    @property
    def offered(self) -> bytes:
        """The pair's id, or the one that `found_pair` will give it."""
        return self._offered if self.pair == NO_ID else self.pair

    def found_pair(self) -> bytes:
        """The pair's id, written now if there is none: for a master whose first slave joins. OSError."""
        if self.pair == NO_ID:
            self._write(self._content._replace(pair=self._offered))
            log.info("this broker is the master of the new pair %s", self.pair.hex())
        return self.pair

    def join(self, pair: bytes) -> None:
        """Take over a master's pair. ValueError: this store belongs to another one. OSError."""
        if len(pair) != ID_BYTES or pair == NO_ID:
            raise ValueError("the master sent no id of a pair")
        if pair == self.pair:
            return
        if self.pair != NO_ID:
            raise ValueError(
                f"this store belongs to the pair {self.pair.hex()}, the master to {pair.hex()}: start the slave with "
                "an empty store, or follow the master of its own pair"
            )
        self._write(self._content._replace(pair=pair))

    def separate_from(self, other: bytes) -> bool:
        """Make a new node's id if the other node has the same, which happens when one store was copied from the
        other. Whether it was made. OSError."""
        if other != self.node:
            return False
        self._write(self._content._replace(node=_new_id()))
        log.info("this store was copied from the other node's: it has the new id %s", self.node.hex())
        return True

    def _read(self, text: bytes) -> None:
        self._content = _parsed(text)

    def _write(self, content: _Content) -> None:
        self._file.write(_encoded(content))
        self._content = content


def _encoded(content: _Content) -> bytes:
    members: dict[str, object] = {"nodeId": content.node.hex(), "pairId": content.pair.hex()}
    role = content.role
    if role.kind is not RoleKind.CONFIGURED:
        members |= {"role": role.kind, "roleEpoch": role.epoch}
    if role.master_role:
        members["masterRole"] = role.master_role
    return json.dumps(members).encode()


def _parsed(text: bytes) -> _Content:
    """ValueError."""
    value = fastjson.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    pair, node = (value.get(name) for name in ("pairId", "nodeId"))
    for name, each in (("pairId", pair), ("nodeId", node)):
        if not isinstance(each, str) or not HEX.fullmatch(each):
            raise ValueError(f"{name} is not 32 hexadecimal digits")
    if bytes.fromhex(str(node)) == NO_ID:
        raise ValueError("nodeId is 0")
    return _Content(bytes.fromhex(str(pair)), bytes.fromhex(str(node)), _parsed_role(value))


def _parsed_role(value: json_fields.Members) -> StoredRole:
    """ValueError."""
    kind = value.get("role", RoleKind.CONFIGURED)
    master_role = value.get("masterRole", ASYNC_MASTER if kind == RoleKind.PROMOTED else "")
    if kind not in list(RoleKind):
        raise ValueError(f"role is {str(kind)[:40]!r}")
    if master_role not in ("", *MASTER_ROLES):
        raise ValueError(f"masterRole is {str(master_role)[:40]!r}")
    epoch = json_fields.number(value, "roleEpoch", 0, low=0, high=EPOCH_MAX)
    return StoredRole(RoleKind(kind), epoch, master_role)


def _new_id() -> bytes:
    return os.urandom(ID_BYTES)
