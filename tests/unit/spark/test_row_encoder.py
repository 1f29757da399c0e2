"""Rows: columns of an Arrow batch as the items of batch requests."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.arrow_import import ListArray, StringArray
from firearrow._native.columnar.row_encoder import RowEncoder
from firearrow._native.store.log.batch import items_of
from firearrow.client.base.message import decode_properties
from firearrow.spark_tools.arrow.message_columns import lists, pairs, texts, whole_numbers

PREFIX = "0123456789ABCDEF0123"
TEXTS = st.one_of(
    st.none(), st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=9)
)
MAP = pa.map_(pa.string(), pa.string())


def everything(rows: RowEncoder, **limits: int) -> list[tuple[int, bytes, dict[str, str]]]:
    """All items of all batches, the rows in their order."""
    order = np.arange(rows.count, dtype=np.int64).data
    found, start = [], 0
    while start < rows.count:
        body, start = rows.batch(order, start, **{"bytes_max": 1 << 20, "count_max": 1024, **limits})
        found += items_of(body)
    return [(flag, body, decode_properties(properties)) for flag, body, properties in found]


def bodies(*values: bytes | None) -> StringArray:
    return texts(pa.array(values, pa.binary()))


def test_a_row_of_every_kind_of_column_is_an_item_with_its_properties() -> None:
    rows = RowEncoder(
        bodies(b"one", b"", b"three"),
        texts={"TAGS": texts(pa.array(["A", None, ""]))},
        lists={"KEYS": lists(pa.array([["k1", None, "k2", ""], None, []], pa.list_(pa.string())))},
        numbers={"AT": whole_numbers(pa.array([0, None, 1 << 62]))},
        constants={"JOB": "replay"},
        properties=pairs(pa.array([[("a", "1"), ("b", None)], None, [("c", "")]], MAP)),
        flags=whole_numbers(pa.array([7, None, -1]), pa.int32(), 0),
    )
    assert everything(rows) == [
        (7, b"one", {"a": "1", "TAGS": "A", "KEYS": "k1 k2", "AT": "0", "JOB": "replay"}),
        (0, b"", {"JOB": "replay"}),
        (-1, b"three", {"AT": str(1 << 62), "JOB": "replay"}),
    ]


MADE = st.tuples(
    st.binary(max_size=20),
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.dictionaries(st.text("abK", min_size=1, max_size=3), TEXTS),
)
Made = tuple[bytes, str | None, list[str | None], dict[str, str | None]]


def of_made(made: list[Made]) -> pa.RecordBatch:
    columns = {
        "body": pa.array([row[0] for row in made], pa.binary()),
        "tags": pa.array([row[1] for row in made], pa.string()),
        "keys": pa.array([row[2] for row in made], pa.list_(pa.string())),
        "map": pa.array([list(row[3].items()) for row in made], MAP),
    }
    return pa.record_batch(columns)


def expected_of(row: Made) -> tuple[int, bytes, dict[str, str]]:
    """Without the property `a`."""
    body, tags, keys, properties = row
    named = {name: value for name, value in properties.items() if value and name != "a"}
    words = " ".join(word for word in keys if word)
    return 0, body, named | ({"TAGS": tags} if tags else {}) | ({"KEYS": words} if words else {})


@given(st.lists(MADE, min_size=1, max_size=30), st.integers(0, 10), st.integers(1, 200), st.integers(1, 5))
def test_each_row_comes_once_in_order_for_any_slice_and_limits(
    made: list[Made], first: int, bytes_max: int, count_max: int
) -> None:
    first = min(first, len(made))
    batch = of_made(made).slice(first)
    rows = RowEncoder(
        texts(batch["body"]),
        texts={"TAGS": texts(batch["tags"])},
        lists={"KEYS": lists(batch["keys"])},
        properties=pairs(batch["map"]),
        dropped={"a"},
    )
    expected = [expected_of(row) for row in made[first:]]
    assert everything(rows, bytes_max=bytes_max, count_max=count_max) == expected


def test_a_row_gets_an_id_unless_its_column_or_its_map_has_one() -> None:
    columns = {"UNIQ_KEY": texts(pa.array([None, "MINE", None]))}
    numbered = (PREFIX, (1 << 48) - 2)
    made = everything(RowEncoder(bodies(b"", b"", b""), texts=columns, ids=(PREFIX, 0xABC)))
    assert [item[2]["UNIQ_KEY"] for item in made] == [
        PREFIX + "000000000ABC",
        "MINE",
        PREFIX + "000000000ABE",
    ]
    own = pairs(pa.array([[("UNIQ_KEY", "OWN")], None, []], MAP))
    made = everything(RowEncoder(bodies(b"", b"", b""), properties=own, ids=numbered))
    assert [item[2]["UNIQ_KEY"] for item in made][:2] == ["OWN", PREFIX + "FFFFFFFFFFFF"]


def test_a_column_goes_before_the_property_of_the_map() -> None:
    own = pairs(pa.array([[("TAGS", "old"), ("DELAY", "3"), ("x", "y")]], MAP))
    rows = RowEncoder(
        bodies(b"b"), texts={"TAGS": texts(pa.array([None], pa.string()))}, properties=own, dropped={"DELAY"}
    )
    assert everything(rows) == [(0, b"b", {"x": "y"})]


def test_a_batch_is_closed_by_bytes_or_rows_and_holds_at_least_one() -> None:
    rows = RowEncoder(bodies(*[b"x" * 100] * 5))
    order = np.arange(5, dtype=np.int64).data
    assert rows.batch(order, 0, bytes_max=1, count_max=9)[1] == 1
    assert rows.batch(order, 0, bytes_max=1000, count_max=2)[1] == 2
    size = 22 + 100 + 42  # space for an id is reserved whether there is one or not
    assert rows.batch(order, 0, bytes_max=3 * size, count_max=9)[1] == 3
    assert rows.batch(order, 0, bytes_max=3 * size - 1, count_max=9)[1] == 2


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"texts": {"TAGS": texts(pa.array(["a", "x\x02y"]))}}, r"row 1: a property holds the byte 1 or 2"),
        ({"properties": pairs(pa.array([[], [("a\x01b", "c")]], MAP))}, "row 1: a property holds the byte 1 or 2"),
        ({"texts": {"TAGS": texts(pa.array(["a", "x" * 32762]))}}, "row 1: its properties are over 32767 bytes"),
    ],
)  # fmt: skip
def test_what_no_consumer_could_read_is_refused_with_its_row(
    columns: dict[str, object], sentence: str
) -> None:
    rows = RowEncoder(bodies(b"a", b"b"), **columns)  # type: ignore[arg-type]
    order = np.arange(2, dtype=np.int64).data
    with pytest.raises(ValueError, match=sentence):
        rows.batch(order, 0, bytes_max=1 << 20, count_max=9)
    assert rows.single(0)[1] == b"a"


def test_properties_of_exactly_the_limit_go() -> None:
    rows = RowEncoder(bodies(b""), texts={"TAGS": texts(pa.array(["x" * 32761]))})
    assert len(rows.single(0)[2]) == 32767


def test_a_null_body_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1: its body is null"):
        everything(RowEncoder(bodies(b"a", None)))


def test_a_body_that_no_request_carries_is_refused() -> None:
    most = (16 << 20) - (64 << 10)
    assert len(RowEncoder(bodies(b"x" * most)).single(0)[1]) == most
    with pytest.raises(ValueError, match=f"row 0: it is over {most} bytes, more than one request carries"):
        RowEncoder(bodies(b"x" * (most + 1))).single(0)


def test_a_constant_with_a_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="property JOB: a property holds the byte 1 or 2"):
        RowEncoder(bodies(b"a"), constants={"JOB": "a\x02b"})


def test_large_offsets_and_single_rows() -> None:
    column = pa.array(["é", "b"], pa.large_string())
    keys = pa.array([["k"], None], pa.large_list(pa.string()))
    rows = RowEncoder(texts(column), lists={"KEYS": lists(keys)})
    assert rows.single(0) == (0, "é".encode(), b"KEYS\x01k\x02")
    with pytest.raises(IndexError):
        rows.single(2)


@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, 1, 9], [-1, 0, 1], [0, 1]])
def test_offsets_that_lie_never_make_a_column(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="do not lie within"):
        StringArray(np.array(offsets, np.int32).data, b"abc", None, 0, 2)
    with pytest.raises(ValueError, match="do not lie within"):
        ListArray(np.array(offsets, np.int32).data, None, 0, 2, bodies(b"", b"", b""))


def test_columns_that_are_shorter_than_the_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="a column of 1 rows beside one of 2"):
        RowEncoder(bodies(b"", b""), texts={"TAGS": bodies(b"")})
    with pytest.raises(ValueError, match="1 numbers for 2 rows"):
        RowEncoder(bodies(b"", b""), numbers={"AT": np.zeros(1, np.int64).data})
    with pytest.raises(ValueError, match="validity bits"):
        StringArray(np.zeros(10, np.int32).data, b"", b"\xff", 0, 9)
    with pytest.raises(IndexError):
        RowEncoder(bodies(b"")).batch(np.array([1], np.int64).data, 0, bytes_max=1, count_max=1)


@given(st.lists(TEXTS, max_size=20))
def test_hashes_are_javas(values: list[str | None]) -> None:
    column = texts(pa.array(values, pa.string()))
    assert list(column.hashes()) == [java_hash(value or "") for value in values]
