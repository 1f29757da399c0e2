"""PairIdentity: which pair a store belongs to, and which node of it this is; `config/pairIdentity.json`.

A pair's id is made by its master when the first slave of ours joins, and taken over by each slave that begins with an
empty log; a log of another pair is refused by it. A node's id is that of one store: it tells two connections of one
slave apart from two slaves. A store restored from a backup has the id of the backed-up node, until `separate_from`.

Each change is on the disk before the call returns. Loop thread.
"""

import json
import logging
import os
import re
from pathlib import Path

from firearrow.broker.base import fastjson
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.replication")

FILE_NAME = "pairIdentity.json"
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
"""Of a store that belongs to no pair yet."""
HEX = re.compile(r"[0-9a-f]{32}")


class PairIdentity:
    """Loads the file, and makes the node's id if there is none yet. StartError: the file is damaged or cannot be
    read. OSError: it cannot be written."""

    def __init__(self, config_folder: str | os.PathLike[str]) -> None:
        self._file = ConfigFile(Path(config_folder) / FILE_NAME, strict=True)
        self._pair = self._node = NO_ID
        self._file.load(self._read)
        if self._node == NO_ID:
            self._write(NO_ID, _new_id())

    @property
    def pair(self) -> bytes:
        """16 bytes; NO_ID: none yet."""
        return self._pair

    @property
    def node(self) -> bytes:
        """16 bytes."""
        return self._node

    def found_pair(self) -> bytes:
        """The pair's id, made now if there is none: for a master whose first slave joins. OSError."""
        if self._pair == NO_ID:
            self._write(_new_id(), self._node)
            log.warning("this broker is the master of the new pair %s", self._pair.hex())
        return self._pair

    def join(self, pair: bytes) -> None:
        """Take over a master's pair. ValueError: this store belongs to another one. OSError."""
        if len(pair) != ID_BYTES or pair == NO_ID:
            raise ValueError("the master sent no id of a pair")
        if pair == self._pair:
            return
        if self._pair != NO_ID:
            raise ValueError(
                f"this store belongs to the pair {self._pair.hex()}, the master to {pair.hex()}: start the slave with "
                "an empty store, or follow the master of its own pair"
            )
        self._write(pair, self._node)

    def separate_from(self, other: bytes) -> bool:
        """Make a new node's id if the other node has the same, which happens when one store was copied from the
        other. Whether it was made. OSError."""
        if other != self._node:
            return False
        self._write(self._pair, _new_id())
        log.warning("this store was copied from the other node's: it has the new id %s", self._node.hex())
        return True

    def _read(self, text: bytes) -> None:
        value = fastjson.loads(text)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        pair, node = (value.get(name) for name in ("pairId", "nodeId"))
        for name, each in (("pairId", pair), ("nodeId", node)):
            if not isinstance(each, str) or not HEX.fullmatch(each):
                raise ValueError(f"{name} is not 32 hexadecimal digits")
        if bytes.fromhex(str(node)) == NO_ID:
            raise ValueError("nodeId is 0")
        self._pair, self._node = bytes.fromhex(str(pair)), bytes.fromhex(str(node))

    def _write(self, pair: bytes, node: bytes) -> None:
        self._file.write(json.dumps({"nodeId": node.hex(), "pairId": pair.hex()}).encode())
        self._pair, self._node = pair, node


def _new_id() -> bytes:
    return os.urandom(ID_BYTES)
