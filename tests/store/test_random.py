"""Random operations compared with a simple model, and random bytes for every parser."""

import random
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from firearrow._native.base.hash import CRC_WAYS, crc32, java_hash
from firearrow._native.store.files.errors import StoreError
from firearrow._native.store.log.record import RecordError, decode
from tests.support.examples import examples
from tests.support.stores import bodies, open_store, properties_of, put

STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("put"), some.integers(0, 2), some.binary(max_size=700)),
        some.tuples(some.sampled_from(["write", "close", "kill", "prepare", "flush"])),
    ),
    max_size=60,
)


@examples(60)
@given(STEPS)
def test_a_store_is_a_list_of_written_messages(steps: list[tuple[object, ...]]) -> None:
    written: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    staged: list[tuple[int, bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        store = open_store(root)
        for step in steps:
            if step[0] == "put":
                number, body = step[1], step[2]
                assert isinstance(number, int)
                assert isinstance(body, bytes)
                placed = put(store, body, queue_id=number, properties=properties_of(KEYS="k", TAGS="t"))
                assert placed.queue_offset == len(written[number]) + sum(n == number for n, _ in staged)
                staged.append((number, body))
            elif step[0] == "prepare":
                store.prepare()
            elif step[0] == "flush":
                store.flush_queues()
            else:
                if step[0] != "kill":
                    for number, body in staged:
                        written[number].append(body)
                staged.clear()
                if step[0] == "write":
                    store.write()
                else:
                    store.close() if step[0] == "close" else store.abandon()
                    store = open_store(root)
            for number, wanted in written.items():
                assert bodies(store, queue_id=number) == wanted
        store.close()


PROPERTIES = some.lists(
    some.sampled_from(
        [b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAG", b"\0", b"\1", b"\2", b"\1", b"\2", b"a", b"tag-b"]
    ),
    max_size=24,
).map(b"".join)


def tag_of(properties: bytes) -> str:
    """As Java parses them: a part without a value is none, the last of equal names wins."""
    found = b""
    for part in properties.split(b"\2"):
        name, _, value = part.partition(b"\1")
        if name == b"TAGS" and value:
            found = value
    return found.decode()


@examples(60)
@given(some.lists(PROPERTIES, max_size=60))
def test_a_tag_is_found_at_any_position(texts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store") as store:
        for text in texts:
            put(store, b"", properties=text)
        store.write()
        found = [entry.tags_code for entry in store.reader.entries("T", 0, 0, len(texts))] if texts else []
        assert found == [java_hash(tag_of(text)) for text in texts]


@given(some.binary(max_size=1200))
def test_crc_is_zlibs(data: bytes) -> None:
    wanted = zlib.crc32(data) & 0x7FFFFFFF
    assert crc32(data) == wanted
    assert [crc32(data, way) for way in range(CRC_WAYS)] == [wanted] * CRC_WAYS


@pytest.mark.parametrize("way", range(CRC_WAYS))
def test_crc_of_every_length_is_zlibs(way: int) -> None:
    data = random.Random(1).randbytes(1200)
    for length in range(1100):
        start = length % 67
        part = memoryview(data)[start : start + length]
        assert crc32(part, way) == zlib.crc32(part) & 0x7FFFFFFF, (start, length)


@pytest.mark.parametrize("length", [4095, 100_003])
def test_crc_of_long_and_unaligned_bodies_is_zlibs(length: int) -> None:
    data = random.Random(length).randbytes(length + 9)
    for start in range(9):
        part = data[start : start + length]
        assert crc32(memoryview(data)[start : start + length]) == zlib.crc32(part) & 0x7FFFFFFF


@pytest.mark.parametrize("way", [-1, CRC_WAYS])
def test_an_unsupported_crc_implementation_is_refused(way: int) -> None:
    with pytest.raises(ValueError, match=f"way {way}: this processor has {CRC_WAYS}, from 0"):
        crc32(b"x" * 300, way)


@given(some.lists(some.one_of(some.text(), some.text("aZ~\x7f#", min_size=6))).map("".join))
def test_java_hash_is_over_utf16_units(text: str) -> None:
    raw = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    assert java_hash(text) == value - (1 << 32 if value >> 31 else 0)


def test_every_changed_byte_of_a_record_is_refused_or_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        placed = put(store, b"the body", properties=properties_of(KEYS="k"))
        store.write()
        raw = store.reader.record_at(placed.physical_offset)
    assert raw is not None
    for at in range(len(raw)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = raw[:at] + bytes([value]) + raw[at + 1 :]
            try:
                record = decode(changed)
            except RecordError:
                continue
            assert record.size == len(raw)
            assert record.body == b"the body"
    for cut in range(len(raw)):
        with pytest.raises(RecordError):
            decode(raw[:cut])


@given(some.binary(max_size=300))
def test_random_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode(data)


@examples(150)
@given(
    some.sampled_from(["commitlog", "consumequeue/T/0", "index", "checkpoint"]),
    some.integers(0, 5000),
    some.binary(min_size=1, max_size=64),
    some.booleans(),
)
def test_a_store_with_random_damage_opens_or_is_refused(part: str, at: int, noise: bytes, kill: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        store = open_store(root)
        for number in range(30):
            put(store, b"%d" % number * 50, properties=properties_of(KEYS=f"k{number}", TAGS="t"))
        store.write()
        store.abandon() if kill else store.close()
        path = root / part
        path = min(path.iterdir()) if path.is_dir() else path
        if not path.exists():  # a killed store has no checkpoint yet
            return
        with path.open("r+b") as file:
            file.seek(at % path.stat().st_size)
            file.write(noise[: path.stat().st_size - file.tell()])
        try:
            store = open_store(root)
        except StoreError:
            return
        for offset in range(-1, 32):
            store.reader.get("T", 0, offset, 32)
        for number in range(30):
            store.reader.query("T", f"k{number}", 32, 0, 1 << 40)
        store.close()
