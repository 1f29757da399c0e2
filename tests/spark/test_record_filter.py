"""Which records match: exact strings and half-open times, in any combination, compared with plain Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from firearrow._native.columnar.record_filter import RecordFilter
from firearrow._native.columnar.record_spans import Spans, walk
from firearrow._native.columnar.string_set import StringSet
from firearrow._native.store.log.record import Record, RecordError
from tests.spark.record_bytes import properties_bytes, record_bytes, spans_of
from tests.spark.stores import Golden


def records_of(spans: Spans) -> list[Record]:
    return [spans[index] for index in range(len(spans))]


def bodies(spans: Spans) -> list[bytes]:
    return [record.body for record in records_of(spans)]


def one(body: bytes = b"", topic: str = "T", stored: int = 50, born: int = 40, **properties: str) -> bytes:
    return record_bytes(body, properties_bytes(properties), topic=topic, stored_ms=stored, born_ms=born)


FOUR = (
    one(b"a", TAGS="red", KEYS="k1 k2", UNIQ_KEY="A"),
    one(b"b", TAGS="redder", KEYS="k11", UNIQ_KEY="B"),
    one(b"c", topic="U", KEYS=" k2  k3 ", stored=60, born=30),
    one(b"d", TAGS="größe", UNIQ_KEY="D", stored=70, born=70),
)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"tags": ["red"]}, b"a"),
        ({"tags": ["re", "reddest", "RED"]}, b""),
        ({"tags": ["größe", "redder"]}, b"bd"),
        ({"tags": [""]}, b""),
        ({"tags": []}, b""),
        ({"keys": ["k1"]}, b"a"),
        ({"keys": ["k2"]}, b"ac"),
        ({"keys": ["k1 k2"]}, b""),
        ({"keys": ["", " "]}, b""),
        ({"keys": {"k3", "k11"}}, b"bc"),
        ({"unique_ids": ["B", "D", "b"]}, b"bd"),
        ({"topics": ["U"]}, b"c"),
        ({"topics": ["T", "U"], "tags": ["red", "redder"], "keys": ["k11"]}, b"b"),
        ({"stored_from": 60}, b"cd"),
        ({"stored_until": 60}, b"ab"),
        ({"stored_from": 60, "stored_until": 70}, b"c"),
        ({"born_from": 40, "born_until": 70}, b"ab"),
        ({"stored_from": 50, "born_until": 31}, b"c"),
        ({}, b"abcd"),
    ],
)
def test_all_that_is_asked_must_hold(asked: dict[str, object], kept: bytes) -> None:
    spans = spans_of(*FOUR)
    found = RecordFilter(**asked).keep(spans)  # type: ignore[arg-type]
    assert b"".join(bodies(found)) == kept
    assert found.bytes == sum(record.size for record in records_of(found))
    assert found.base == spans.base


def test_equal_hashes_are_not_equal_tags() -> None:
    spans = spans_of(one(b"a", TAGS="Aa"), one(b"b", TAGS="BB"))  # Java hashes both to 2112
    assert bodies(RecordFilter(tags=["BB"]).keep(spans)) == [b"b"]


def test_nothing_asked_is_everything() -> None:
    spans = spans_of(*FOUR)
    assert RecordFilter().everything
    assert RecordFilter().keep(spans) is spans
    assert not RecordFilter(stored_from=0).everything


def test_one_text_for_a_collection_is_refused() -> None:
    with pytest.raises(TypeError, match="tags: a collection of str is wanted"):
        RecordFilter(tags="red")


def test_bytes_that_change_are_an_error() -> None:
    window = bytearray(one(b"x"))
    spans, _, _ = walk(window, 0, 1)
    assert bodies(RecordFilter(stored_from=0).keep(spans)) == [b"x"]
    window[4] = 0
    with pytest.raises(RecordError, match="the record at 0 changed"):
        RecordFilter(stored_from=0).keep(spans)


def test_a_golden_log_is_selected_as_its_manifest_says(golden: Golden) -> None:
    messages = [m for topic, q in golden.queues() for m in q["messages"] if topic == m["topicInRecord"]]
    tags = {m["tags"] for m in messages if m.get("tags")}
    keys = {key for m in messages for key in (m.get("keys") or "").split(" ") if key}
    kept_by_tag: list[int] = []
    kept_by_key: list[int] = []
    for path in sorted((golden.root / "commitlog").iterdir()):
        spans, _, _ = walk(path.read_bytes(), 0, 1 << 40, base=int(path.name))
        kept_by_tag += (r.physical_offset for r in records_of(RecordFilter(tags=tags).keep(spans)))
        kept_by_key += (r.physical_offset for r in records_of(RecordFilter(keys=keys).keep(spans)))
    assert {m["physicalOffset"] for m in messages if m.get("tags")} <= set(kept_by_tag)
    assert {m["physicalOffset"] for m in messages if (m.get("keys") or "").strip()} <= set(kept_by_key)
    assert len(tags) > 5
    assert len(keys) > 300


WORDS = some.sampled_from(["", "a", "b", "ab", "a b", " ", "ä", "abcdefgh", "abcdefghi", "x" * 40])
MESSAGES = some.lists(
    some.tuples(WORDS, WORDS, WORDS, some.sampled_from("TUV"), some.integers(0, 5), some.integers(0, 5)),
    max_size=25,
)
SETS = some.none() | some.sets(WORDS)
TIMES = some.none() | some.integers(0, 5)


@settings(max_examples=300, deadline=None)
@given(
    MESSAGES, SETS, SETS, SETS, some.none() | some.sets(some.sampled_from("TUW")), some.tuples(*[TIMES] * 4)
)
def test_kept_is_what_plain_python_keeps(
    messages: list[tuple[str, str, str, str, int, int]],
    tags: set[str] | None,
    keys: set[str] | None,
    ids: set[str] | None,
    topics: set[str] | None,
    times: tuple[int | None, ...],
) -> None:
    stored_from, stored_until, born_from, born_until = times

    def wanted(message: tuple[str, str, str, str, int, int]) -> bool:
        tag, key, unique, topic, stored, born = message
        return (
            (tags is None or (tag != "" and tag in tags))
            and (keys is None or any(part in keys for part in key.split(" ") if part))
            and (ids is None or (unique != "" and unique in ids))
            and (topics is None or topic in topics)
            and (stored_from is None or stored >= stored_from)
            and (stored_until is None or stored < stored_until)
            and (born_from is None or born >= born_from)
            and (born_until is None or born < born_until)
        )

    spans = spans_of(
        *(
            one(b"%d" % number, topic, stored, born, TAGS=tag, KEYS=key, UNIQ_KEY=unique)
            for number, (tag, key, unique, topic, stored, born) in enumerate(messages)
        )
    )
    kept = RecordFilter(
        topics=topics,
        tags=tags,
        keys=keys,
        unique_ids=ids,
        stored_from=stored_from,
        stored_until=stored_until,
        born_from=born_from,
        born_until=born_until,
    ).keep(spans)
    assert bodies(kept) == [b"%d" % number for number, message in enumerate(messages) if wanted(message)]


# ---- sets of strings ----


@settings(max_examples=200, deadline=None)
@given(
    some.lists(some.text(some.characters(exclude_categories=["Cs"]), max_size=20)),
    some.lists(some.text(max_size=3)),
)
def test_a_set_of_texts_is_a_set(texts: list[str], others: list[str]) -> None:
    made = StringSet(texts)
    assert len(made) == made.count == len(set(texts))
    for text in texts:
        assert text in made
    for text in others:
        assert (text in made) == (text in set(texts))


def test_a_set_may_be_large() -> None:
    made = StringSet([f"key-{number}" for number in range(200_000)])
    assert len(made) == 200_000
    assert all(f"key-{number}" in made for number in range(0, 200_000, 997))
    assert not any(f"key-{number}" in made for number in range(200_000, 400_000, 997))


def test_a_name_that_is_no_unicode_is_compared_by_its_bytes() -> None:
    spans = spans_of(record_bytes(b"a", b"TAGS\x01\xff\xfe\x02"))
    assert bodies(RecordFilter(tags=["\udcff\udcfe"]).keep(spans)) == [b"a"]
