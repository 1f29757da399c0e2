"""What a store remembers of its role: which options a start has, and that it is on the disk before it shows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow._native.store.log.results import WriteRefusal
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.replication.failover.fencing import Fencing
from firearrow.broker.replication.failover.role import BrokerRole, promote_stopped
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.log.pair_identity import RoleKind, stored_role

MASTER = replace(Options(), listen_port=10911)
SLAVE = replace(MASTER, broker_role="SLAVE", broker_id=3)


def opened(root: Path, options: Options, end: int = 100) -> tuple[BrokerRole, Options]:
    """As a start does."""
    role = BrokerRole(str(root))
    effective = role.effective(options)
    role.rebuild(effective)
    role.open(end, is_slave=False)
    return role, effective


def test_a_store_without_a_role_is_what_its_configuration_says(tmp_path: Path) -> None:
    for options in (MASTER, SLAVE):
        role, effective = opened(tmp_path, options)
        assert effective == options
        assert (role.epoch, role.begins, role.fenced) == (0, False, "")
    assert list(tmp_path.iterdir()) == []


def test_a_promoted_store_is_a_master(tmp_path: Path) -> None:
    role, _ = opened(tmp_path, SLAVE)
    role.promote(1, "SYNC_MASTER")
    assert EpochFile(tmp_path).last == 0
    role, effective = opened(tmp_path, SLAVE)
    assert (effective.broker_role, effective.broker_id, effective.ha_port) == ("SYNC_MASTER", 0, 10912)
    assert role.begins
    assert EpochFile(tmp_path).entries == ((1, 100),)
    role, effective = opened(tmp_path, replace(SLAVE, ha_port=7), end=250)
    assert (effective.broker_role, effective.ha_port, role.begins) == ("SYNC_MASTER", 7, False)
    assert EpochFile(tmp_path).entries == ((1, 100),)
    role, effective = opened(tmp_path, MASTER, end=250)  # once the operator has changed it
    assert (effective.broker_role, effective.ha_port) == ("ASYNC_MASTER", 0)


def test_a_fenced_store_takes_no_writes_until_it_is_a_slave(tmp_path: Path) -> None:
    role, _ = opened(tmp_path, MASTER)
    order: list[str] = []
    role.wire(
        lambda why: order.append(f"refused, {stored_role(tmp_path / 'config').kind}"),
        lambda why: order.append("started again"),
    )
    role.fence(4, "the other one is the master")
    assert order == ["refused, fenced", "started again"]
    role.fence(4, "again")
    role.fence(3, "an older one")
    assert len(order) == 2
    role, effective = opened(tmp_path, MASTER)
    assert (effective.broker_role, effective.broker_id) == ("SLAVE", 1)
    assert (role.epoch, "epoch 4" in role.fenced) == (4, True)
    role, effective = opened(tmp_path, SLAVE)
    assert (effective, role.fenced) == (SLAVE, "")
    role.on_joined(3)
    assert opened(tmp_path, MASTER)[0].fenced, "it has not joined the new master"
    role, _ = opened(tmp_path, SLAVE)
    assert role.epoch == 4
    role.on_joined(4)
    assert stored_role(tmp_path / "config").kind is RoleKind.CONFIGURED


def test_a_fenced_store_is_promoted_only_by_force(tmp_path: Path) -> None:
    """It lacks what the new master has taken, whether it runs or not; by force it is again what it was."""
    role, _ = opened(tmp_path, replace(MASTER, broker_role="SYNC_MASTER"))
    role.wire(lambda why: None, lambda why: None)
    role.fence(4, "the other one is the master")
    with pytest.raises(StartError, match=r"was fenced by epoch 4, .* add --force"):
        promote_stopped(str(tmp_path), "ASYNC_MASTER")
    assert opened(tmp_path, MASTER)[0].fenced
    assert promote_stopped(str(tmp_path), force=True) == (RoleKind.PROMOTED, 5, "SYNC_MASTER")


@pytest.mark.parametrize("force", [False, True])
def test_a_store_that_begins_again_is_not_promoted(tmp_path: Path, force: bool) -> None:
    """Its log may be moved away in part."""
    role, _ = opened(tmp_path, SLAVE)
    role.ask_for_rebuild()
    with pytest.raises(
        StartError, match="is to start again with an empty log, as `firearrow replica rebuild` asked"
    ):
        promote_stopped(str(tmp_path), force=force)
    assert stored_role(tmp_path / "config").kind is RoleKind.REBUILDING


def test_a_slave_remembers_its_masters_role(tmp_path: Path) -> None:
    role, _ = opened(tmp_path, SLAVE)
    role.record_role("SYNC_MASTER")
    assert opened(tmp_path, SLAVE)[1] == SLAVE
    role, _ = opened(tmp_path, SLAVE)
    assert role.master_role == "SYNC_MASTER"
    role.fence(4, "the other one is the master")
    role.on_joined(4)
    assert promote_stopped(str(tmp_path)) == (RoleKind.PROMOTED, 1, "SYNC_MASTER")
    assert promote_stopped(str(tmp_path / "other")) == (RoleKind.PROMOTED, 1, "ASYNC_MASTER")


def test_what_cannot_be_written_is_refused_all_the_same(tmp_path: Path) -> None:
    role, _ = opened(tmp_path, MASTER)
    assert role.identity.node
    (tmp_path / "config" / "pairIdentity.json.tmp").mkdir()
    order: list[str] = []
    role.wire(lambda why: order.append("refused"), lambda why: order.append("started again"))
    with pytest.raises(OSError, match="directory"):
        role.fence(1, "the other one is the master")
    assert order == ["refused"]
    with pytest.raises(OSError, match="directory"):
        role.promote(1, "ASYNC_MASTER")
    assert stored_role(tmp_path / "config").kind is RoleKind.CONFIGURED


def test_a_log_that_lost_the_end_of_its_epochs_forgets_them(tmp_path: Path) -> None:
    epochs = EpochFile(tmp_path)
    for number, start in ((1, 0), (2, 50), (3, 200)):
        epochs.append(number, start)
    assert opened(tmp_path, MASTER)[0].epochs.entries == ((1, 0), (2, 50))


@pytest.mark.parametrize("refusal", WriteRefusal)
def test_the_answer_of_name_servers_ends_only_the_wait_for_it(refusal: WriteRefusal) -> None:
    """A master that was fenced, or gives its place away, while they were asked takes no writes; also if the fence
    could not be written to the disk, and the role is not `fenced`."""
    context: Any = SimpleNamespace(store=SimpleNamespace(write_refusal=refusal))
    role: Any = SimpleNamespace(is_fenced=False)
    Fencing(context, role, is_master=True, stop_services=lambda: None).take_writes()
    assert context.store.write_refusal == (None if refusal is WriteRefusal.UNCERTAIN else refusal)
