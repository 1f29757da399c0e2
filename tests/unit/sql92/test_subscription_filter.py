"""What filters read from records, and how they cache compiled expressions."""

from pathlib import Path

import pytest

from firearrow._native.sql92.errors import InvalidExpression
from firearrow._native.store.log.properties import property_values
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.options import Options
from firearrow.broker.tables.subscription_filter import ALIVE_MAX, FilterCache
from firearrow.broker.tables.subscriptions import Subscription
from tests.support.stores import HOST_V6, open_store, properties_of, put

NAMES = {b"a": "a", "größe".encode(): "größe", b"TAGS": "TAGS"}
LARGE = 1 << 16


def record(root: Path, properties: bytes, topic: str = "T", **options: object) -> bytes:
    store = open_store(root, segment_bytes=LARGE)
    try:
        placed = put(store, b"a\x01body\x02", topic, properties=properties, **options)
        store.write()
        found = store.reader.record_at(placed.physical_offset)
    finally:
        store.close()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"", {}),
        (properties_of(a="5", b="6", TAGS="t"), {"a": "5", "TAGS": "t"}),
        (b"a\x015\x02a\x016", {"a": "6"}),
        ("größe\x01ü\x02".encode(), {"größe": "ü"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
        (b"a\x01\x02\x01x\x02a\x02TAGS\x01=\x01\x02", {"TAGS": "=\x01"}),
    ],
)
def test_selected_properties_of_a_record(tmp_path: Path, properties: bytes, found: dict[str, str]) -> None:
    assert property_values(record(tmp_path, properties), NAMES) == found


def test_every_form_of_a_record(tmp_path: Path) -> None:
    six = record(tmp_path / "six", properties_of(a="6"), born_host=HOST_V6, store_host=HOST_V6)
    long = record(tmp_path / "long", properties_of(a="7"), topic="%RETRY%" + "g" * 200)
    assert property_values(memoryview(six), NAMES) == {"a": "6"}
    assert property_values(long, NAMES) == {"a": "7"}


def test_malformed_records_have_no_properties(tmp_path: Path) -> None:
    whole = record(tmp_path, properties_of(a="5"))
    assert property_values(b"", NAMES) == {}
    for length in range(len(whole)):
        assert property_values(whole[:length], NAMES) == {}
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        assert set(property_values(broken, NAMES)) <= set(NAMES.values())


def filters(subscribed: dict[tuple[str, str], Subscription] | None = None, **options: object) -> FilterCache:
    known = subscribed or {}
    return FilterCache(
        Config(Options(property_filter=True, **options)),  # type: ignore[arg-type]
        lambda group, topic: known.get((group, topic)),
    )


def sql(text: str, topic: str = "T") -> Subscription:
    return Subscription(topic, text, expression_type="SQL92")


def test_an_expression_is_compiled_once_for_all_users() -> None:
    some = filters()
    assert some.compiled(sql("a > 1")) is some.compiled(sql("a > 1", "U"))


def test_compiled_expressions_are_bounded_and_the_last_used_stay() -> None:
    some = filters(filter_chars_max=LARGE)
    used = some.compiled(sql("a = 1"))
    texts = [f"a = '{n:09}{'x' * 1000}'" for n in range(100)]
    first = some.compiled(sql(texts[0]))
    for text in texts:
        some.compiled(sql(text))
        assert some.compiled(sql("a = 1")) is used
    assert some.compiled(sql(texts[0])) is not first


def test_expressions_in_use_are_bounded() -> None:
    some = filters(filter_chars_max=LARGE)
    most = ALIVE_MAX * LARGE // 1000 + 1
    texts = [f"a = '{n:09}{'x' * 985}'" for n in range(most + 1)]
    held = [some.compiled(sql(text)) for text in texts[:most]]
    with pytest.raises(Refusal) as refused:
        some.compiled(sql(texts[most]))
    assert refused.value.code == 2
    del held[100:]
    assert some.compiled(sql("a > 1"))


def test_an_invalid_expression_is_reported_each_time() -> None:
    some = filters()
    remarks = set()
    for _ in range(3):
        with pytest.raises(InvalidExpression) as wrong:
            some.compiled(sql("a ="))
        remarks.add(str(wrong.value))
    assert len(remarks) == 1


def test_an_expression_may_not_be_too_long() -> None:
    with pytest.raises(InvalidExpression, match="65537 characters"):
        filters().compiled(sql("a" * ((1 << 16) + 1)))
    assert filters().compiled(sql("a" * (1 << 16)))


def test_tags_are_passed_to_the_store_as_hashes() -> None:
    chosen = filters().select(Subscription.of_expression("T", "x || y"), "G", given=True)
    assert chosen.tags is not None
    assert len(chosen.tags) == 2
    assert chosen.accept is None
    assert filters().select(Subscription("T"), "G", given=False) == (None, None)


@pytest.mark.parametrize(("given", "code"), [(True, 23), (False, 27)])
def test_an_invalid_expression_is_refused_where_it_is_used(given: bool, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        filters().select(sql("a ="), "G", given=given)
    assert refused.value.code == code


def test_a_retried_message_is_filtered_by_its_original_topic(tmp_path: Path) -> None:
    known = {("G", "First"): sql("a > 5", "First"), ("G", "Wrong"): sql("a >", "Wrong")}
    chosen = filters(known, filter_retries=True).select(sql("a = 0", "%RETRY%G"), "G", given=False)
    assert chosen.accept is not None
    verdicts = {}
    for topic in ("First", "Wrong", "Other"):
        for value in ("3", "7"):
            properties = properties_of(RETRY_TOPIC=topic, a=value)
            verdicts[topic, value] = chosen.accept(memoryview(record(tmp_path / topic / value, properties)))
    assert verdicts.pop(("First", "3")) is False
    assert set(verdicts.values()) == {True}


SPEED = ("a > 3", "region = 'hangzhou'", "a BETWEEN 2 AND 6 AND region = 'hangzhou' OR extra IS NOT NULL")


@pytest.mark.parametrize("text", SPEED)
def test_speed_of_one_evaluation(benchmark, tmp_path: Path, text: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """`pytest tests/unit/sql92/test_subscription_filter.py -k speed --benchmark-enable` measures it."""
    properties = properties_of(
        a="5", region="hangzhou", KEYS="k", UNIQ_KEY="A" * 32, WAIT="true", TAGS="t", CLUSTER="DefaultCluster"
    )
    one = memoryview(record(tmp_path, properties))
    assert benchmark(filters().compiled(sql(text)).accept, one) is True
