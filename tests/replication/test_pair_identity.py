"""A pair's id and a node's: kept, taken over once, refused for another pair, and separate after a copied store."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from firearrow.broker.base.errors import StartError
from firearrow.broker.replication.log.pair_identity import (
    FILE_NAME,
    NO_ID,
    PairIdentity,
    RoleKind,
    StoredRole,
    forget_promotion,
    stored_role,
)
from tests.crash import cuts, folder, recording
from tests.crash.disk import Disk
from tests.crash.recording import Kind


def test_ids_are_kept(tmp_path: Path) -> None:
    master = PairIdentity(tmp_path)
    assert (master.pair, len(master.node)) == (NO_ID, 16)
    assert PairIdentity(tmp_path).node == master.node != NO_ID
    pair = master.found_pair()
    assert master.found_pair() == pair != NO_ID
    again = PairIdentity(tmp_path)
    assert (again.pair, again.node) == (pair, master.node)


def test_a_slave_joins_one_pair(tmp_path: Path) -> None:
    slave, pair, other = PairIdentity(tmp_path), os.urandom(16), os.urandom(16)
    slave.join(pair)
    slave.join(pair)
    assert PairIdentity(tmp_path).pair == pair
    with pytest.raises(ValueError, match="start the slave with an empty store"):
        slave.join(other)
    assert PairIdentity(tmp_path).pair == pair


@pytest.mark.parametrize("pair", [b"", NO_ID, bytes(15), b"x" * 17])
def test_what_is_no_id_is_refused(pair: bytes, tmp_path: Path) -> None:
    slave = PairIdentity(tmp_path)
    with pytest.raises(ValueError, match="no id"):
        slave.join(pair)
    assert PairIdentity(tmp_path).pair == NO_ID


def test_a_copied_store_gets_an_id_of_its_own(tmp_path: Path) -> None:
    master = PairIdentity(tmp_path / "master")
    master.found_pair()
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    slave = PairIdentity(tmp_path / "slave")
    assert slave.separate_from(master.node)
    assert not slave.separate_from(master.node)
    assert PairIdentity(tmp_path / "slave").node == slave.node != master.node
    assert slave.pair == master.pair


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"{}", b'{"pairId":"0","nodeId":"1"}', b'{"nodeId":"%s"}' % (b"a" * 32)]
)
def test_a_damaged_file_stops_the_start(text: bytes, tmp_path: Path) -> None:
    PairIdentity(tmp_path).found_pair()
    (tmp_path / FILE_NAME).write_bytes(text)
    for _ in range(2):
        with pytest.raises(StartError, match=r"fix it, restore it"):
            PairIdentity(tmp_path)
    shutil.copy(tmp_path / f"{FILE_NAME}.bak", tmp_path / FILE_NAME)
    assert PairIdentity(tmp_path).pair == NO_ID


def test_a_role_is_kept_and_forgotten_in_a_copy(tmp_path: Path) -> None:
    identity = PairIdentity(tmp_path)
    node = identity.node
    for kind, left in ((RoleKind.PROMOTED, RoleKind.CONFIGURED), (RoleKind.FENCED, RoleKind.FENCED)):
        role = StoredRole(kind, 7, "SYNC_MASTER")
        identity.set_role(role)
        assert stored_role(tmp_path) == PairIdentity(tmp_path).role == role
        forget_promotion(tmp_path)
        assert stored_role(tmp_path).kind is left
        assert PairIdentity(tmp_path).node == node


@pytest.mark.parametrize(
    "members", ['"role":"king"', '"role":"fenced","roleEpoch":-1', '"masterRole":"SLAVE"']
)
def test_a_damaged_role_is_refused(tmp_path: Path, members: str) -> None:
    PairIdentity(tmp_path)
    file = tmp_path / "pairIdentity.json"
    file.write_text(file.read_text().replace("{", "{" + members + ",", 1))
    with pytest.raises(StartError, match=r"role|masterRole|roleEpoch"):
        stored_role(tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_power_cut_leaves_the_ids_before_or_after(seed: int, tmp_path: Path) -> None:
    """A damaged file would stop the start; a node's id that was used never comes again as another one's."""
    library, draw, seen = recording.build(tmp_path), random.Random(seed), 0
    with folder.scratch() as scratch:
        ops = recording.record(
            library, scratch / "recorded", "identity", seed, module="tests.replication.identity_writes"
        )
        disk, allowed = Disk(), list[list[str]]()
        for op in ops:
            disk.apply(op)
            if op.kind == Kind.MARK:
                mark = json.loads(op.data)
                allowed = [*(allowed if mark["what"] == "saving" else []), mark["ids"]]
            states = [
                *cuts.extremes(disk),
                *(cuts.every(disk) or ()),
                *(cuts.drawn(disk, draw) for _ in range(8)),
            ]
            for cut in states:
                folder.make(scratch / "state", cuts.image_of(disk, cut))
                identity = PairIdentity(scratch / "state")
                found = identity.pair.hex(), identity.node.hex()
                assert not allowed or any(
                    all(one in ("", other) for one, other in zip(ids, found, strict=True)) for ids in allowed
                ), (str(op), cut)
                seen += 1
    assert seen > 300
