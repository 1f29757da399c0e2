"""The wire under controllers against what Apache's brokers sent, and the sync state set's rules."""

import gzip
import json
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import StartError
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.broker_identity import Applied, IdentityFiles
from firearrow.broker.replication.controller.frames import FrameError, Greeting, PieceHeader, Welcome
from firearrow.broker.replication.controller.requests import ControllerError, Elected, elected
from firearrow.broker.replication.controller.sync_state_set import MEMBERS_MAX, SyncStateSet
from firearrow.broker.replication.log.confirmed_offset import EVERYTHING, CopiesNeeded
from firearrow.broker.replication.log.epoch_file import Epoch

RECORDED = Path(__file__).parents[1] / "recorded" / "replication" / "controller-mode.jsonl.gz"


def recorded(kind: str, direction: str) -> list[dict[str, object]]:
    with gzip.open(RECORDED, "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [each for each in found if each["kind"] == kind and each.get("dir") == direction]


def test_a_slave_s_frames_are_apaches() -> None:
    for each in recorded("handshake", "c2s"):
        raw = bytes.fromhex(str(each["rawHex"]))
        greeting = frames.greeting_of(raw)
        assert greeting == Greeting(int(str(each["brokerId"])))
        assert frames.greeting_frame(greeting) == raw
    acks = recorded("ack", "c2s")
    assert len(acks) > 10
    for each in acks:
        raw = bytes.fromhex(str(each["rawHex"]))
        assert frames.acknowledged(raw) == each["offset"]
        assert frames.acknowledgement(frames.acknowledged(raw)) == raw


def test_a_master_s_frames_are_apaches() -> None:
    for each in recorded("handshake", "s2c"):
        raw = bytes.fromhex(str(each["headerHex"]) + str(each["bodyHex"]))
        welcome = frames.welcome_of(raw)
        assert welcome is not None
        assert (welcome.end, [list(epoch) for epoch in welcome.epochs]) == (each["offset"], each["epochs"])
        assert frames.welcome_frame(*welcome) == raw
        assert all(frames.welcome_of(raw[:cut]) is None for cut in range(len(raw)))
    pieces = recorded("transfer", "s2c") + recorded("heartbeat", "s2c")
    assert len(pieces) > 10
    for each in pieces:
        raw = bytes.fromhex(str(each["headerHex"]))
        header = frames.piece_of(raw)
        assert header == PieceHeader(
            int(str(each["size"])),
            int(str(each["offset"])),
            Epoch(int(str(each["epoch"])), int(str(each["epochStartOffset"]))),
            int(str(each["confirmOffset"])),
        )
        assert frames.piece_header(header) == raw


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="enableControllerMode"):
        frames.greeting_of((5).to_bytes(8, "big") + bytes(8))  # a slave without controllers asks for offset 5
    with pytest.raises(FrameError, match="enableControllerMode"):
        frames.welcome_of(bytes(20))
    for size in (-12, 13, 12 * 1025):
        with pytest.raises(FrameError):
            frames.welcome_of(frames.WELCOME.pack(1, size, 0, 0))
    with pytest.raises(FrameError, match="acknowledgement"):
        frames.acknowledged(bytes(12))
    for state, size in ((1, 0), (2, -1), (2, (4 << 20) + 1)):
        with pytest.raises(FrameError):
            frames.piece_of(frames.PIECE.pack(state, size, 0, 1, 0, 0))
    assert frames.welcome_of(frames.welcome_frame(7, ())) == Welcome(7, ())


def test_the_largest_piece() -> None:
    frame = frames.PIECE.pack(2, frames.PIECE_BYTES_MAX, 0, 1, 0, 0)
    assert frames.piece_of(frame).size == frames.PIECE_BYTES_MAX
    with pytest.raises(FrameError):
        frames.piece_of(frames.PIECE.pack(2, frames.PIECE_BYTES_MAX + 1, 0, 1, 0, 0))


# ---- the sync state set ----


def test_the_largest_set() -> None:
    def of(count: int) -> Elected:
        body = json.dumps({"syncStateSet": list(range(1, count + 1)), "syncStateSetEpoch": 3}).encode()
        ext = {"masterBrokerId": "1", "masterEpoch": "2", "masterAddress": "127.0.0.1:10911"}
        return elected(RemotingCommand.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext, body))

    found = of(MEMBERS_MAX)
    assert (found.number, found.epoch, len(found.members.numbers)) == (1, 2, MEMBERS_MAX)
    with pytest.raises(ControllerError, match="at most"):
        of(MEMBERS_MAX + 1)


@pytest.mark.parametrize(
    "body", [b"[]", b'{"syncStateSet":[0]}', b'{"syncStateSet":["1"]}', b'{"syncStateSet":{}}', b"{"]
)
def test_an_answer_without_a_set_of_numbers_is_refused(body: bytes) -> None:
    with pytest.raises(ControllerError, match="malformed"):
        elected(RemotingCommand.request(0, {}, body))


ONE = CopiesNeeded(1, 1)


def test_all_members_hold_up_what_is_confirmed() -> None:
    members = SyncStateSet(1, {1, 2, 3}, 5)
    assert members.confirmed(ONE, 2, all_members=True).replicated == 0
    members.acknowledged(2, 900)
    members.acknowledged(3, 700)
    members.acknowledged(4, 10)
    assert members.confirmed(ONE, 3, all_members=True)[:2] == (700, 700)
    assert members.replace({1, 2}, 6)
    assert members.confirmed(ONE, 3, all_members=True).visible == 900
    assert not members.replace({1}, 6)
    assert members.replace({1}, 7)
    assert members.confirmed(ONE, 0, all_members=True).visible == EVERYTHING


def test_a_set_that_is_asked_for_counts_as_well_as_the_old_one() -> None:
    members = SyncStateSet(1, {1, 2}, 5)
    members.acknowledged(2, 900)
    members.acknowledged(3, 800)
    members.ask_for(frozenset({1, 3}))
    assert members.counted == {1, 2, 3}
    assert members.confirmed(ONE, 2, all_members=True).replicated == 800
    members.settle()
    assert members.confirmed(ONE, 2, all_members=True).replicated == 900


def test_only_members_count_for_in_sync_replicas() -> None:
    members = SyncStateSet(1, {1, 2}, 5)
    members.acknowledged(2, 500)
    members.acknowledged(3, 900)
    assert members.confirmed(CopiesNeeded(2, 1), 2, all_members=False).replicated == 500
    too_few = members.confirmed(CopiesNeeded(3, 3), 2, all_members=False)
    assert too_few.fault == 12
    assert too_few.refuses


def test_slaves_leave_the_set_when_they_are_late_or_gone() -> None:
    members = SyncStateSet(1, {1, 2, 3}, 5)
    members.caught_up(2, 100.0)
    assert members.shrunk(110.0, 15.0) == {1, 2}
    members.caught_up(3, 109.0)
    assert members.shrunk(110.0, 15.0) is None
    assert members.shrunk(116.0, 15.0) == {1, 3}
    assert members.left(3) == {1, 2}
    assert members.left(4) is None


# ---- identity files ----


def test_identity_files_are_apaches(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path, "C", "b")
    assert (files.number, files.applied) == (None, None)
    files.apply(Applied(3, "127.0.0.1:10911;1700000000000"))
    assert (tmp_path / "brokerIdentity-temp").read_text() == "C#b#3#127.0.0.1:10911;1700000000000"
    assert IdentityFiles(tmp_path, "C", "b").applied == Applied(3, "127.0.0.1:10911;1700000000000")
    files.accept(3)
    assert (tmp_path / "brokerIdentity").read_text() == "C#b#3"
    assert not (tmp_path / "brokerIdentity-temp").exists()
    assert IdentityFiles(tmp_path, "C", "b").number == 3
    with pytest.raises(StartError, match="set brokerName"):
        IdentityFiles(tmp_path, "C", "other")


@pytest.mark.parametrize("text", ["C#b", "C#b#x", "C#b#0", "C#b#-1", "C#b#3#more", "C#b#" + "9" * 30, "\xff"])
def test_a_damaged_identity_ends_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerIdentity").write_bytes(text.encode("latin-1"))
    with pytest.raises(StartError, match="is damaged"):
        IdentityFiles(tmp_path, "C", "b")
