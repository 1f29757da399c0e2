"""Frames of a pair: any cut, each flipped bit, bounds before memory; the handshake with and without a secret."""

import os
import random
import struct

import pytest

from firearrow._native.base.hash import crc32c
from firearrow.broker.replication.log.epoch_file import EPOCHS_MAX, Epoch
from firearrow.broker.replication.wires.firearrow import frames, handshake
from firearrow.broker.replication.wires.firearrow.frames import (
    Ack,
    FrameDecoder,
    FrameError,
    Heartbeat,
    Kind,
    LogPiece,
    Table,
    TableKind,
)
from firearrow.broker.replication.wires.firearrow.handshake import (
    MAGIC,
    LogSummary,
    MasterHandshake,
    Member,
    RefusalCode,
    Refused,
    SlaveHandshake,
    secret_fault,
)
from firearrow.broker.tables.dataversion import DataVersion
from tests.hostile.targets_replication import SUMMARY, some_frames

SECRET = b"sixteen bytes or more"


def test_each_kind_is_read_as_it_was_written() -> None:
    piece, version = LogPiece(1 << 40, 3, 77, b"records"), DataVersion(5, 3, 1700000000000)
    table = Table(TableKind.CONSUMER_OFFSETS, 7, version, b'{"offsetTable":{}}')
    sent = b"".join(
        (
            *frames.log_frame(*piece[:3], memoryview(piece.data)),
            frames.table_frame(table),
            frames.heartbeat_frame(Heartbeat(1, 2, 3)),
            frames.ack_frame(Ack(4, 5, 6)),
            frames.ask_frame([(0, 5), (7, 9)]),
            frames.checksums_frame([0, 0xFFFFFFFF]),
        )
    )
    bodies = [each.body for each in FrameDecoder(Kind).feed(sent)]
    assert frames.log_piece(bodies[0]) == piece
    assert frames.table(bodies[1]) == table
    assert frames.heartbeat(bodies[2]) == (1, 2, 3)
    assert frames.ack(bodies[3]) == (4, 5, 6)
    assert frames.ask(bodies[4]) == [(0, 5), (7, 9)]
    assert frames.checksums(bodies[5]) == [0, 0xFFFFFFFF]


def test_any_cut_gives_the_same_frames() -> None:
    sent, draw = b"".join(some_frames()), random.Random(2)
    whole = FrameDecoder(Kind).feed(sent)
    assert len(whole) == len(some_frames())
    for size in (1, 2, 3, 7, 64, 1000):
        decoder, found = FrameDecoder(Kind), []
        for at in range(0, len(sent), size):
            found += decoder.feed(sent[at : at + size])
        assert found == whole
    for _ in range(50):
        decoder, found, at = FrameDecoder(Kind), [], 0
        while at < len(sent):
            size = draw.randint(0, 200)
            found += decoder.feed(memoryview(sent)[at : at + size])
            at += size
        assert found == whole


def test_each_flipped_bit_is_found() -> None:
    """A longer length waits for bytes that do not come, and then for a CRC that matches: never a wrong frame."""
    sent = frames.ack_frame(Ack(1, 2, 3))
    after = frames.heartbeat_frame(Heartbeat(9, 9, 9)) * 20
    for bit in range(8 * len(sent)):
        changed = bytearray(sent)
        changed[bit // 8] ^= 1 << bit % 8
        decoder = FrameDecoder(Kind)
        with pytest.raises(FrameError, match=r"\w"):
            assert decoder.feed(bytes(changed) + after * 100) == []


@pytest.mark.parametrize("kind", Kind)
def test_length_is_bounded_before_memory_is_taken(kind: Kind) -> None:
    most = frames.BODY_BYTES_MAX[kind]
    assert FrameDecoder(Kind).feed(struct.pack(">IB", most, kind)) == []
    with pytest.raises(FrameError, match="at most"):
        FrameDecoder(Kind).feed(struct.pack(">IB", most + 1, kind))
    assert frames.frame(kind, bytes(min(most, 1 << 20)))
    with pytest.raises(ValueError, match="at most"):
        frames.frame(kind, bytes(most + 1))


def test_the_largest_piece_of_the_log() -> None:
    data = random.Random(1).randbytes(frames.LOG_BYTES_MAX)
    (found,) = FrameDecoder({Kind.LOG}).feed(b"".join(frames.log_frame(0, 1, 0, memoryview(data))))
    assert frames.log_piece(found.body).data == data
    with pytest.raises(ValueError, match="at most"):
        frames.log_frame(0, 1, 0, memoryview(data + b"x"))


def test_kinds_that_may_not_come_now() -> None:
    decoder = FrameDecoder(frames.TO_MASTER)
    with pytest.raises(FrameError, match="LOG frame is not expected"):
        decoder.feed(struct.pack(">IB", 5, Kind.LOG))
    with pytest.raises(FrameError, match="kind 99 are unknown"):
        FrameDecoder(frames.TO_MASTER).feed(struct.pack(">IB", 5, 99))


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (frames.log_piece, struct.pack(">qiq", 0, 1, 0)),
        (frames.log_piece, struct.pack(">qiq", -1, 1, 0) + b"x"),
        (frames.log_piece, struct.pack(">qiq", 0, -1, 0) + b"x"),
        (frames.log_piece, struct.pack(">qiq", 0, 0, -1) + b"x"),
        (frames.table, b""),
        (frames.table, struct.pack(">Bqqqq", 99, 0, 0, 0, 0)),
        (frames.table, struct.pack(">Bqqqq", 1, -1, 0, 0, 0)),
        (frames.heartbeat, bytes(23)),
        (frames.ack, struct.pack(">qqq", 0, -1, 0)),
        (frames.ask, bytes(17)),
        (frames.checksums, bytes(5)),
    ],
)
def test_bodies_that_cannot_be(read: object, body: bytes) -> None:
    assert callable(read)
    with pytest.raises(FrameError):
        read(body)


# ---- the handshake ----


def only(sent: bytes) -> frames.Frame:
    (found,) = FrameDecoder(Kind).feed(sent.removeprefix(MAGIC))
    return found


MEMBER = Member("SYNC_MASTER", 0, ":10911")


def test_both_learn_each_other_s_facts() -> None:
    """Also of which version the other one is: an earlier FireArrow is answered as it asked."""
    theirs = SUMMARY._replace(node=os.urandom(16), epoch=4, member=MEMBER)
    ours = SUMMARY._replace(member=Member("SLAVE", 7, "10.0.0.2:10911"))
    for secret, version in ((SECRET, 1), (SECRET, 2), (SECRET, 3), (b"", 3)):
        sent, answered = (handshake.of_version(each, version) for each in (ours, theirs))
        assert (sent.member is None) == (version == 1)
        slave, master = SlaveHandshake(secret, sent), MasterHandshake(secret)
        hello = slave.hello()
        assert int.from_bytes(hello[:8], "big", signed=True) < 0
        assert only(hello).body[1] == version
        assert master.greeted(only(hello)) == sent
        assert slave.answered(only(master.answer(theirs, 50))) == (answered, 50)
        master.proved(only(slave.proof()))


def test_an_address_of_a_member_is_bounded() -> None:
    longest = "a" * handshake.ADDRESS_BYTES_MAX
    member = handshake.member_of("SLAVE", 1, longest)
    assert (
        MasterHandshake(b"")
        .greeted(only(SlaveHandshake(b"", SUMMARY._replace(member=member)).hello()))
        .member
        == member
    )
    for address in (longest + "a", "hôte:1", "a\n"):
        assert handshake.member_of("SLAVE", 1, address).address == ""
    with pytest.raises(ValueError, match="256 bytes"):
        SlaveHandshake(b"", SUMMARY._replace(member=Member("SLAVE", 1, longest + "a")))


@pytest.mark.parametrize(
    "fields",
    [(4, 1, 0, b""), (1, -1, 0, b""), (1, 1, 9, b"short"), (1, 1, 2, b"\n\n"), (1, 1, 2, "ä".encode())],
)
def test_a_member_that_cannot_be(fields: tuple[int, int, int, bytes]) -> None:
    role, broker_id, length, address = fields
    body = only(SlaveHandshake(b"", SUMMARY._replace(member=MEMBER)).hello()).body
    before = body[: -handshake.NONCE_BYTES - len(MEMBER.address) - handshake.MEMBER.size]
    changed = before + handshake.MEMBER.pack(role, broker_id, length) + address + bytes(handshake.NONCE_BYTES)
    with pytest.raises(FrameError):
        MasterHandshake(b"").greeted(frames.Frame(Kind.HELLO, changed))


@pytest.mark.parametrize(
    ("of_slave", "of_master", "what"),
    [
        (SECRET, SECRET + b"x", "differ"),
        (SECRET, b"", "only this broker"),
        (b"", SECRET, "only the other broker"),
    ],
)
def test_another_secret_is_refused_by_both(of_slave: bytes, of_master: bytes, what: str) -> None:
    slave, master = SlaveHandshake(of_slave, SUMMARY), MasterHandshake(of_master)
    master.greeted(only(slave.hello()))
    answer = only(master.answer(SUMMARY, 0))
    with pytest.raises(Refused, match=what) as refused:
        slave.answered(answer)
    assert refused.value.code == RefusalCode.SECRET
    with pytest.raises(Refused, match=r"set the same one on both"):
        master.proved(only(slave.proof()))


def test_proofs_hold_for_one_handshake_and_one_role() -> None:
    first, master = SlaveHandshake(SECRET, SUMMARY), MasterHandshake(SECRET)
    master.greeted(only(first.hello()))
    answer = only(master.answer(SUMMARY, 0))
    first.answered(answer)
    again = SlaveHandshake(SECRET, SUMMARY)
    with pytest.raises(Refused, match="differ"):  # the same answer to another hello
        again.answered(answer)
    later = MasterHandshake(SECRET)
    later.greeted(only(first.hello()))
    later.answer(SUMMARY, 0)
    with pytest.raises(Refused, match="differ"):  # the same proof for another answer
        later.proved(only(first.proof()))
    with pytest.raises(Refused, match="differ"):  # the master's own proof, sent back
        master.proved(frames.Frame(Kind.PROOF, answer.body[-handshake.PROOF_BYTES :]))


def test_changed_facts_are_found_though_the_crc_is_right() -> None:
    slave, master = SlaveHandshake(SECRET, SUMMARY), MasterHandshake(SECRET)
    master.greeted(only(slave.hello()))
    body = only(master.answer(SUMMARY, 7)).body
    for bit in range(0, 8 * len(body), 3):
        changed = bytearray(body)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Refused, FrameError)):
            slave.answered(frames.Frame(Kind.ANSWER, bytes(changed)))


@pytest.mark.parametrize(
    ("secret", "host", "fault"),
    [
        (b"", "127.0.0.1", ""),
        (b"", "::1", ""),
        (b"", "10.0.0.1", "no secret: set haSecret"),
        (SECRET, "10.0.0.1", ""),
        (b"short", "127.0.0.1", "5 bytes: set haSecret to at least 16"),
    ],
)
def test_without_a_secret_only_the_loopback_interface(secret: bytes, host: str, fault: str) -> None:
    found = secret_fault(secret, host, option="haSecret")
    assert fault in found
    assert bool(found) == bool(fault)


def test_refusals() -> None:
    slave, master = SlaveHandshake(SECRET, SUMMARY), MasterHandshake(SECRET)
    for take in (slave.answered, master.proved):
        with pytest.raises(Refused, match="another pair") as refused:
            take(only(handshake.refusal(RefusalCode.PAIR, "another pair")))
        assert refused.value.code == RefusalCode.PAIR
    long = handshake.refused(only(handshake.refusal(RefusalCode.OTHER, "é" * 5000)).body)
    assert len(str(long)) < handshake.TEXT_BYTES_MAX
    with pytest.raises(FrameError):
        handshake.refused(b"x")


def test_another_version_is_refused_whatever_follows_it() -> None:
    with pytest.raises(Refused, match="speaks version 4") as refused:
        MasterHandshake(SECRET).greeted(frames.Frame(Kind.HELLO, b"\0\4whatever"))
    assert refused.value.code == RefusalCode.VERSION


def test_counts_of_a_greeting_are_bounded() -> None:
    epochs = tuple(Epoch(n, n) for n in range(EPOCHS_MAX))
    most = SUMMARY._replace(epochs=epochs, chain=tuple(range(handshake.CHAIN_MAX)), version=1)
    assert MasterHandshake(b"").greeted(only(SlaveHandshake(b"", most).hello())) == most
    for more in (
        most._replace(epochs=(*epochs, Epoch(EPOCHS_MAX, EPOCHS_MAX))),
        most._replace(chain=(*most.chain, 1)),
    ):
        with pytest.raises(ValueError, match="too many"):
            SlaveHandshake(b"", more)
    body = only(SlaveHandshake(b"", SUMMARY).hello()).body
    at = 2 + handshake.FIXED.size
    with pytest.raises(FrameError, match=f"{EPOCHS_MAX + 1} epochs"):
        MasterHandshake(b"").greeted(
            frames.Frame(Kind.HELLO, body[:at] + struct.pack(">H", EPOCHS_MAX + 1) + body[at + 2 :])
        )
    for length in range(len(body)):
        with pytest.raises(FrameError):
            MasterHandshake(b"").greeted(frames.Frame(Kind.HELLO, body[:length]))
    with pytest.raises(FrameError, match="too many"):
        MasterHandshake(b"").greeted(frames.Frame(Kind.HELLO, body + b"x"))


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"first": 200},
        {"flushed": 101},
        {"end": -1},
        {"node": bytes(16)},
        {"chain_start": 101},
        {"epochs": (Epoch(2, 5), Epoch(1, 9))},
    ],
)
def test_facts_that_cannot_be(change: dict[str, object]) -> None:
    changed = LogSummary(**{**SUMMARY._asdict(), **change})
    with pytest.raises(FrameError):
        MasterHandshake(b"").greeted(only(SlaveHandshake(b"", changed).hello()))


def test_a_common_point_outside_the_log_is_refused() -> None:
    slave, master = SlaveHandshake(SECRET, SUMMARY), MasterHandshake(SECRET)
    master.greeted(only(slave.hello()))
    assert slave.answered(only(master.answer(SUMMARY, -1))).common_point == handshake.ASK_FOR_CHECKSUMS
    for point in (-2, SUMMARY.end + 1):
        with pytest.raises(FrameError, match="outside"):
            slave.answered(only(master.answer(SUMMARY, point)))


def test_the_crc_is_that_of_all_before_it() -> None:
    sent = frames.ack_frame(Ack(1, 2, 3))
    assert int.from_bytes(sent[-4:], "big") == crc32c(sent[:-4])
