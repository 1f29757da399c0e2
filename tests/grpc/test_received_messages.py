"""The messages of a receive are encoded from their records as `message_to` makes them."""

import struct
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow._native.grpc.received_messages import ReceivedMessages
from firearrow._native.store.log.record import decode
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.message_codec import NOT_SETTABLE, OTHERWISE_SENT, RESERVED, message_to
from firearrow.broker.grpc.receipts import Receipt

MAGIC = -626843481
HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
NOW_MS = 1_800_000_000_000
PHYSICAL = 123_456_789
DELIVERED_MAX = 16
STARTS = {0: 0, 1: 17}
RESPONSE = messages.method_classes("ReceiveMessage")[1]

NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8),
    st.sampled_from(sorted(NOT_SETTABLE)),
    st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "__BORNHOST", "TRACE_CONTEXT", "PGROUP"]),
)
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8),
    st.sampled_from(["", " ", "a  b ", "1", "2147483648", "true"]),
)


class Stored(NamedTuple):
    """A record, as it is generated."""

    pairs: list[tuple[str, str]]
    has_id: bool
    is_cut: bool
    body: bytes
    sys_flag: int
    times_ms: tuple[int, int]
    numbers: tuple[int, int, int]
    """Queue, offset, and how often it was delivered before."""
    topic: str
    junk: bytes

    @property
    def properties(self) -> bytes:
        pairs = [*self.pairs, *[("UNIQ_KEY", "ID1")] * self.has_id]
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
        return text.encode()[: -1 if self.is_cut and text else None] + self.junk

    @property
    def data(self) -> bytes:
        (queue_id, offset, times), (born, stored), properties = self.numbers, self.times_ms, self.properties
        tail = bytes((len(self.topic),)) + self.topic.encode()
        tail += struct.pack(">h", len(properties)) + properties
        size = HEAD.size + len(self.body) + len(tail)
        head = (size, MAGIC, 0, queue_id, 0, offset, PHYSICAL, self.sys_flag)
        return HEAD.pack(*head, born, HOST, stored, HOST, times, 0, len(self.body)) + self.body + tail

    @property
    def is_usual(self) -> bool:
        """Whether it should be encoded: what clients send to topics of type NORMAL is."""
        names = [name for name, _ in self.pairs]
        return (
            self.has_id
            and self.body != b""
            and len({"UNIQ_KEY", *names}) == len(names) + 1
            and all(name and value for name, value in self.pairs)
            and OTHERWISE_SENT.isdisjoint(names)
            and self.sys_flag in (0, 2)
            and min(self.times_ms) > 0
            and self.numbers[0] < 2
            and self.numbers[2] <= DELIVERED_MAX
            and (self.topic, self.junk) == ("T", b"")
        )


STORED = st.builds(
    Stored,
    pairs=st.lists(st.tuples(NAMES, VALUES), max_size=6),
    has_id=st.booleans(),
    is_cut=st.booleans(),
    body=st.binary(max_size=300),
    sys_flag=st.sampled_from([0, 0, 0, 2, 1, 0x301]),
    times_ms=st.tuples(st.integers(-1, 1 << 41), st.integers(0, 1 << 41)),
    numbers=st.tuples(st.integers(0, 2), st.integers(0, 1 << 40), st.integers(0, 20)),
    topic=st.sampled_from(["T", "T", "%RETRY%G_T"]),
    junk=st.sampled_from([b"", b"", b"", b"\xff", b"a\x01\xc3"]),
)


@settings(max_examples=500, deadline=None)
@given(STORED)
def test_what_is_encoded_is_what_the_codec_makes(stored: Stored) -> None:
    resource = messages.Resource(name="T", resource_namespace="space")
    encoder = ReceivedMessages(
        "T",
        resource.SerializeToString(),
        "1700000000000 60000 3",
        "broker-a",
        STARTS,
        frozenset(name.encode() for name in OTHERWISE_SENT),
        frozenset(name.encode() for name in RESERVED),
    )
    made = encoder.encode(b"....." + stored.data, 5, DELIVERED_MAX)
    if made is None:
        assert not stored.is_usual
        return
    part, handle, record_bytes, body_bytes = made
    expected = message_to(decode(stored.data, False), "T", NOW_MS)
    expected.topic.CopyFrom(resource)
    queue_id, offset, _ = stored.numbers
    receipt = f"{STARTS[queue_id]} 1700000000000 60000 3 0 broker-a {queue_id} {offset} {PHYSICAL}"
    expected.system_properties.receipt_handle = receipt
    assert handle.decode() == receipt == Receipt.of(receipt, "T", "G").text
    assert (record_bytes, body_bytes) == (len(stored.data), len(stored.body))
    assert struct.unpack(">BI", part[:5]) == (0, len(part) - 5)
    response = RESPONSE(message=expected)
    assert RESPONSE.FromString(part[5:]) == response
    if len(expected.user_properties) < 2:  # protobuf writes entries of maps in any order
        assert part[5:] == response.SerializeToString()
