"""Parsers of what the other broker of a pair sends, and of the files that tell pairs apart."""

import random

from firearrow._native.store.log.journal_entries import Entry
from firearrow.broker.append.progress_journal import Kind as EntryKind
from firearrow.broker.append.progress_journal import compacted_file
from firearrow.broker.replication.log import common_point, epoch_file
from firearrow.broker.replication.log.epoch_file import Epoch
from firearrow.broker.replication.wires.firearrow import frames, journal_stream
from firearrow.broker.replication.wires.firearrow.frames import (
    Ack,
    FrameDecoder,
    Heartbeat,
    Kind,
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
    refusal,
    refused,
)
from firearrow.broker.tables.dataversion import DataVersion
from tests.hostile.fuzz import Target

SUMMARY = LogSummary(bytes(range(16)), b"n" * 16, 3, 0, 100, 90, (Epoch(1, 0), Epoch(3, 50)), 0, (7, 8))
ENTRIES = [Entry(EntryKind.OFFSET, "t@g", 3, 7, 0), Entry(EntryKind.DELAY, "", 2, 9, 900)]


def journal_bytes() -> bytes:
    return compacted_file(iter(ENTRIES))


def some_frames() -> list[bytes]:
    """One or two of each kind."""
    master = MasterHandshake(b"secret")
    slave = SlaveHandshake(b"secret", SUMMARY)
    master.greeted(FrameDecoder(Kind).feed(slave.hello()[len(MAGIC) :])[0])
    answer = master.answer(SUMMARY, 5)[len(MAGIC) :]
    slave.answered(FrameDecoder(Kind).feed(answer)[0])
    latest = SlaveHandshake(b"secret", SUMMARY._replace(member=Member("SLAVE", 1, "10.0.0.2:10911")))
    return [
        slave.hello()[len(MAGIC) :],
        latest.hello()[len(MAGIC) :],
        answer,
        slave.proof(),
        *journal_stream.journal_frames([journal_bytes()]),
        b"".join(frames.log_frame(0, 1, 0, memoryview(b"x" * 300))),
        frames.table_frame(Table(TableKind.TOPICS, 7, DataVersion(1, 2, 3), b"{}")),
        frames.heartbeat_frame(Heartbeat(1, 2, 3)),
        frames.ack_frame(Ack(4, 5, 6)),
        frames.ask_frame([(0, 5), (7, 9)]),
        frames.checksums_frame([1, 2, 3]),
        refusal(RefusalCode.PAIR, "another pair"),
    ]


def read_frames(data: bytes) -> None:
    """In cuts at random; what was accepted is written as it came."""
    draw, decoder, found, at = random.Random(len(data)), FrameDecoder(Kind), [], 0
    while at < len(data):
        size = draw.randint(1, 100)
        found += decoder.feed(data[at : at + size])
        at += size
    assert data.startswith(b"".join(frames.frame(*each) for each in found))


def read_body(data: bytes) -> None:
    """The first byte is the kind: no CRC keeps changes out."""
    kind, body = Kind(data[0] if data else 0), data[1:]
    match kind:
        case Kind.HELLO:
            MasterHandshake(b"secret").greeted(frames.Frame(kind, body))
        case Kind.ANSWER:
            SlaveHandshake(b"", SUMMARY).answered(frames.Frame(kind, body))
        case Kind.PROOF:
            MasterHandshake(b"secret").proved(frames.Frame(kind, body))
        case Kind.LOG:
            piece = frames.log_piece(body)
            assert body.endswith(piece.data)
        case Kind.JOURNAL:
            assert sum(27 + len(entry.name.encode()) for entry in journal_stream.entries_in(body)) == len(
                body
            )
        case Kind.TABLE:
            table = frames.table(body)
            assert frames.table_frame(table)[5:-4] == body
        case Kind.HEARTBEAT:
            frames.heartbeat(body)
        case Kind.ACK:
            frames.ack(body)
        case Kind.ASK:
            common_point.checked(frames.ask(body))
        case Kind.CHECKSUMS:
            frames.checksums(body)
        case Kind.REFUSAL:
            refused(body)


def bodies() -> list[bytes]:
    """Without those that only a certain handshake accepts."""
    found = [FrameDecoder(Kind).feed(each)[0] for each in some_frames()]
    return [bytes([each.kind]) + each.body for each in found if each.kind not in (Kind.ANSWER, Kind.PROOF)]


def read_epochs(data: bytes) -> None:
    """What was accepted is accepted again as we write it."""
    entries = epoch_file.decoded(data)
    assert epoch_file.decoded(epoch_file.encoded(entries)) == entries


REPLICATION = (
    Target("firearrow_frames", some_frames, read_frames),
    Target("pair_bodies", bodies, read_body, (ValueError, Refused)),
    Target(
        epoch_file.FILE_NAME,
        lambda: [epoch_file.encoded([Epoch(1, 0), Epoch(2, 500)]), b"2\n0\n1-0\n7-9000\n"],
        read_epochs,
    ),
)
