"""Hostile clients, in short: bounded memory, and the background client is served. The long form is a command."""

from pathlib import Path

import pytest

from tests.hostile.attacker import ATTACKS
from tests.hostile.hostile import Who, besiege
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, send

CONNECTIONS, SECONDS = 60, 0.2


def test_every_attack_leaves_memory_bounded_and_others_served() -> None:
    seen = list(besiege(list(ATTACKS), CONNECTIONS, SECONDS))
    assert [each.name for each in seen] == list(ATTACKS)
    assert not [str(each) for each in seen if each.faults]


@pytest.mark.long
def test_the_same_where_users_have_to_log_in() -> None:
    seen = list(besiege(list(ATTACKS), CONNECTIONS, SECONDS, who=Who.USERS))
    assert not [str(each) for each in seen if each.faults]


def test_an_insider_over_tls() -> None:
    """The attackers speak TLS, which is all that the broker accepts, and sign as a user who may do everything."""
    names = [
        "almost_small",
        "unread_answers",
        "other_protocols",
        "handshakes",
        "huge_counts",
        "held_pulls",
        "pops",
        "rapid_resets",
        "closed_windows",
    ]
    seen = list(besiege(names, CONNECTIONS, SECONDS, who=Who.INSIDER, tls=True))
    assert not [str(each) for each in seen if each.faults]


def half_of_a_frame(size: int) -> bytes:
    return (size + 1000).to_bytes(4) + b"\0" + (100).to_bytes(3) + bytes(size)


def test_the_heaviest_of_too_many_bytes_is_closed(tmp_path: Path) -> None:
    """64 MiB are allowed: of the partial frames the largest are closed, and a small one may be completed."""
    with (
        BrokerProcess(tmp_path / "s", "--set", f"maxConnectionBytes={64 << 20}") as broker,
        broker.connect() as small,
    ):
        assert send(small, "Heavy", b"x").code == 0
        heavy = [ClientSocket(broker.address) for _ in range(8)]
        gone = 0
        for each in heavy:
            try:
                each.send_raw(half_of_a_frame(15 << 20))
            except ConnectionError:
                gone += 1
        gone += sum(each.closed_by_peer(0.2) for each in heavy)
        assert 0 < gone < 8
        assert "the buffers of all hold" in broker.log.read_text()
        assert pull(small, "Heavy", 0).code == 0
        for each in heavy:
            each.close()
        assert broker.stop() == 0


def test_below_the_limit_none_is_closed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "s", "--set", f"maxConnectionBytes={64 << 20}") as broker:
        heavy = [ClientSocket(broker.address) for _ in range(3)]
        for each in heavy:
            each.send_raw(half_of_a_frame(15 << 20))
        assert not any(each.closed_by_peer(0.1) for each in heavy)
        for each in heavy:
            each.close()
