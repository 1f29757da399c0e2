"""MasterProof and its claims: what strangers at a name server can make a master do is bounded."""

import asyncio
import logging
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from firearrow.broker.app.pair_services import CLAIMS_MAX, PairServices
from firearrow.broker.replication.master_proof import WARNED_MAX, MasterProof
from firearrow.broker.replication.pair_identity import NO_ID


def test_addresses_that_are_warned_of_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(warned_of(caplog))


async def warned_of(caplog: pytest.LogCaptureFixture) -> None:
    identity = SimpleNamespace(pair=b"p" * 16, node=NO_ID)
    proof = MasterProof(b"a long secret", lambda: identity, lambda: 1, MagicMock(), lambda: None)  # type: ignore[arg-type, return-value]
    with caplog.at_level(logging.WARNING, "firearrow.replication"):
        for number in range(WARNED_MAX):
            assert await proof.epoch_of(f"no address {number}", 5) is None
        assert len(caplog.records) == WARNED_MAX
        assert await proof.epoch_of("one more", 5) is None
    assert len(caplog.records) == WARNED_MAX


def test_claims_that_are_looked_into_are_bounded() -> None:
    asyncio.run(claimed())


async def claimed() -> None:
    asked: list[str] = []

    async def epoch_of(address: str, claimed: int) -> None:
        asked.append(address)
        await asyncio.Event().wait()

    proof = SimpleNamespace(is_needed=True, epoch_of=epoch_of)
    context = MagicMock(loop=asyncio.get_running_loop())
    pair = PairServices(
        context,
        MagicMock(),
        None,
        proof,
        replicates=True,
        stop_services=lambda: None,  # type: ignore[arg-type]
    )
    for number in range(CLAIMS_MAX + 1):
        for _ in range(2):  # the same one again is the same claim
            pair._claimed(2, f"127.0.0.1:{number}")
    await asyncio.sleep(0)
    assert asked == [f"127.0.0.1:{number}" for number in range(CLAIMS_MAX)]
    pair.stop()
