"""A promotion that fails after its master was asked to stop writing: the master stays the master, and takes writes."""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.replication.failover import promotion
from firearrow.broker.replication.failover.fencing import CANCEL, FENCE, LEASE_S, PREPARE
from firearrow.broker.replication.failover.promotion import CANCEL_TRIES, FENCE_TRIES, Promotion
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, EPOCH_MAX
from firearrow.broker.replication.session.master_api import ANSWER_S, LogRange, MasterError
from firearrow.broker.replication.session.slave_status import State
from tests.replication.pair_proxy import PairProxy
from tests.replication.promoted_pair import PromotedPair, is_master, option, promoted, state_of
from tests.replication.test_fencing import takes_writes
from tests.support.eventually import eventually

STEPS = b'"epoch":'
"""In each answer to FENCE_BROKER."""
STOPPED = "this broker takes no writes meanwhile"


def lost(proxy: PairProxy) -> None:
    """The answer to the first step."""

    def change(connection: int, at: int, data: bytes) -> bytes:
        if STEPS not in data:
            return data
        proxy.change = lambda connection, at, data: data
        return b""

    proxy.change = change


def late(proxy: PairProxy) -> None:
    """The first step itself, after which the next one waits."""

    def asked(data: bytes) -> bytes:
        if PREPARE.encode() in data:
            time.sleep(ANSWER_S + 1)
        return data

    proxy.asked = asked


@pytest.mark.parametrize("fault", [lost, late])
def test_a_master_whose_answer_does_not_come_takes_writes_again(
    tmp_path: Path, fault: Callable[[PairProxy], None]
) -> None:
    with PromotedPair(tmp_path) as pair:
        pair.fill(20)
        proxy = PairProxy(pair.listen["master"])
        assert pair.master.stop() == 0
        pair.master = pair.start_master(advertisedPort=proxy.address.rpartition(":")[2])
        eventually(lambda: pair.route()[0] == proxy.address, what="the route")
        pair.caught_up()
        fault(proxy)
        refused = promoted(pair.slave)
        refused_at = time.monotonic()
        assert (refused.code, "may still take writes" in refused.err) == (1, True), refused
        eventually(lambda: STOPPED in pair.master.log.read_text(), what="that it has stopped writing")
        eventually(lambda: takes_writes(pair.master), what="that it takes writes")
        assert time.monotonic() - refused_at < LEASE_S / 2
        with pair.slave.connect() as client:
            assert not is_master(client)
        proxy.asked = lambda data: data
        promoted(pair.slave).succeeded()
        proxy.close()


class Asked:
    """Stands for a slave and its master. `faults`: what happens when the tables are copied, then at each step that the
    master is asked for after `prepare`; None: nothing. `steps`: what it was asked for."""

    text, address, state = "127.0.0.1:1", ("127.0.0.1", 1), (State.FOLLOWING, "")
    epoch = 4

    def __init__(self, *faults: BaseException | None) -> None:
        self.steps: list[str] = []
        self.faults = list(faults)
        self.master = self
        self.is_stopped = False

    def _fail(self) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault

    async def ask_for_master(self) -> None: ...
    async def log_range(self) -> LogRange:
        return LogRange(0, 100)

    async def ask(self, code: int, ext: dict[str, str] | None = None) -> RemotingCommand:
        if ext is None:
            return RemotingCommand.request(code, {}, b"brokerRole=SYNC_MASTER\n")
        self.steps.append(ext["step"])
        if ext["step"] != PREPARE:
            self._fail()
        return RemotingCommand.request(code, {}, b'{"epoch":%d,"end":100}' % self.epoch)

    async def copy_tables(self) -> None:
        self._fail()

    async def stop(self) -> None:
        self.is_stopped = True


def promote(asked: Asked, **ext: str) -> None:
    """By a slave that has all."""

    async def run() -> None:
        context = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            store=SimpleNamespace(written=100),
            write_batch=SimpleNamespace(commit=lambda: None),
            restart=lambda restart: None,
            config=SimpleNamespace(options=SimpleNamespace(ha_secret="")),
        )
        role = SimpleNamespace(
            epoch=4, is_fenced=False, fenced="", master_role="", promote=lambda epoch, role: None
        )
        slave = Promotion(cast("Any", context), cast("Any", role), cast("Any", asked))
        request = RemotingCommand.request(RequestCode.PROMOTE_BROKER, ext)
        await slave.promote(request, cast("Any", None))

    asyncio.run(run())


@pytest.mark.parametrize("fault", [OSError("no disk"), RuntimeError("a bug"), asyncio.CancelledError()])
def test_whatever_fails_after_the_master_stopped_is_given_back(fault: BaseException) -> None:
    asked = Asked(fault)
    with pytest.raises((Refusal, RuntimeError, asyncio.CancelledError)):
        promote(asked)
    assert (asked.steps, asked.is_stopped) == ([PREPARE, CANCEL], False)


def test_a_master_that_cannot_be_told_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "AGAIN_S", 0.01)
    asked = Asked(OSError("no disk"), OSError("lost"))
    with pytest.raises(Refusal, match="no disk"):
        promote(asked)
    assert asked.steps == [PREPARE, CANCEL, CANCEL]
    asked = Asked(OSError("no disk"), *[OSError("lost")] * CANCEL_TRIES)
    with pytest.raises(Refusal, match="no disk"):
        promote(asked)
    assert asked.steps == [PREPARE, *[CANCEL] * CANCEL_TRIES]


@pytest.mark.parametrize("epoch", [4 + EPOCH_JUMP_MAX + 1, EPOCH_MAX])
def test_a_master_whose_epoch_cannot_be_is_given_back(epoch: int) -> None:
    asked = Asked(None)
    asked.epoch = epoch
    with pytest.raises(Refusal, match="more than 1000 after 4"):
        promote(asked)
    assert (asked.steps, asked.is_stopped) == ([PREPARE, CANCEL], False)


def test_one_that_is_promoted_by_force_leaves_its_master_stopped() -> None:
    asked = Asked(OSError("no disk"))
    promote(asked, force="true")
    assert (asked.steps, asked.is_stopped) == ([PREPARE], True)


def test_a_master_that_may_be_fenced_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "AGAIN_S", 0.01)
    refuses = MasterError(604, "the log has grown")
    for faults, steps in (
        ([OSError("lost")] * FENCE_TRIES, [FENCE] * FENCE_TRIES),
        ([OSError("lost"), refuses], [FENCE] * 2),
        ([asyncio.CancelledError()], [FENCE]),
        ([refuses], [FENCE, CANCEL]),
    ):
        asked = Asked(None, *faults)
        with pytest.raises((Refusal, asyncio.CancelledError)):
            promote(asked)
        assert (asked.steps, asked.is_stopped) == ([PREPARE, *steps], False)


def test_a_slave_knows_its_masters_role_by_the_handshake(tmp_path: Path) -> None:
    """Its master dies before it has answered any other question about its role."""
    with PromotedPair(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2") as pair:
        pair.slave.kill()
        pair.master.kill()
        proxy = PairProxy(pair.listen["master"])
        proxy.change = lambda connection, at, data: b"" if b"brokerRole=" in data else data
        pair.master = pair.start_master(advertisedPort=proxy.address.rpartition(":")[2])
        shutil.rmtree(tmp_path / "slave")
        pair.slave = pair.start_slave()
        eventually(lambda: state_of(pair.slave) == "following", what="that it follows")
        pair.master.kill()
        proxy.close()
        ran = promoted(pair.slave)
        assert ran.code == 0, ran.err
        with pair.slave.connect() as client:
            eventually(lambda: is_master(client), what="the promotion")
            assert option(client, "brokerRole") == "SYNC_MASTER"
