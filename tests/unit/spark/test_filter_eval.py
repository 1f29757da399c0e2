"""A MessageFilter evaluated: strings and times natively, SQL92 as at brokers, both together."""

import pickle

import pytest

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.record_spans import Spans
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.filter_eval import SQL_CHARS_MAX, FilterEvaluator
from tests.spark.record_bytes import properties_bytes, record_bytes, spans_of
from tests.unit.sql92.test_expressions import FAILED, FALSE, MESSAGE, TRUE, UNKNOWN, each


def spans(*messages: dict[str, str], stored_ms: int = 50) -> Spans:
    return spans_of(
        *(
            record_bytes(b"%d" % n, properties_bytes(properties), stored_ms=stored_ms + n)
            for n, properties in enumerate(messages)
        )
    )


def kept(message_filter: MessageFilter, of: Spans) -> list[int]:
    found = FilterEvaluator(message_filter).keep(of)
    return [int(found[index].body) for index in range(len(found))]


@pytest.mark.parametrize("sql", each(TRUE))
def test_what_is_true_is_kept(sql: str) -> None:
    assert kept(MessageFilter(sql=sql), spans(MESSAGE)) == [0]


@pytest.mark.parametrize("sql", each(FALSE) + each(UNKNOWN) + each(FAILED))
def test_what_is_false_unknown_or_incomparable_is_not_kept(sql: str) -> None:
    assert kept(MessageFilter(sql=sql), spans(MESSAGE)) == []


def test_each_record_is_asked_by_itself() -> None:
    of = spans({"a": "1"}, {"a": "x"}, {}, {"a": "3", "größe": "9"}, {"a": "2"})
    assert kept(MessageFilter(sql="a >= 2"), of) == [3, 4]
    assert kept(MessageFilter(sql="a IS NULL"), of) == [2]
    assert kept(MessageFilter(sql="a < 2 OR a > 2"), of) == [0, 3]


def test_everything_given_must_hold() -> None:
    of = spans(
        {"TAGS": "red", "a": "1", "KEYS": "k"},
        {"TAGS": "blue", "a": "1", "KEYS": "k"},
        {"TAGS": "red", "a": "2", "KEYS": "k"},
        {"TAGS": "red", "a": "1"},
        {"TAGS": "red", "a": "1", "KEYS": "l k"},
    )
    message_filter = MessageFilter(
        tags=frozenset({"red"}), keys=frozenset({"k"}), sql="a = 1", stored=(50, 54)
    )
    assert kept(message_filter, of) == [0]
    assert kept(MessageFilter(tags=frozenset({"red"}), keys=frozenset({"k"}), sql="a = 1"), of) == [0, 4]
    assert kept(MessageFilter(unique_ids=frozenset({"none"})), of) == []
    assert kept(MessageFilter(born=(None, 0)), of) == []


def test_nothing_given_keeps_what_it_got() -> None:
    of = spans({}, {})
    predicate = FilterEvaluator(MessageFilter())
    assert predicate.everything
    assert predicate.keep(of) is of
    assert not FilterEvaluator(MessageFilter(sql="TRUE")).everything


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("a =", "sql: 'a =' is not an SQL92 filter: .*ParseException"),
        ("a = 'x", "sql: .* is not an SQL92 filter: .*Lexical error at line 1"),
        ("a = 1 OR " * SQL_CHARS_MAX, f"sql: {9 * SQL_CHARS_MAX} characters; an expression may have at most"),
        ("(" * 200 + "a" + ")" * 200, "sql: .* is not an SQL92 filter"),
    ],
)
def test_an_invalid_expression_names_the_option(sql: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        FilterEvaluator(MessageFilter(sql=sql))


def test_a_choice_travels_and_gives_the_codes_of_its_tags() -> None:
    message_filter = MessageFilter(tags=frozenset({"red", "Aa", "BB"}), sql="a = 1", stored=(1, None))
    again = pickle.loads(pickle.dumps(message_filter))
    assert again == message_filter
    assert again.tag_codes() == {java_hash("red"), 2112}
    assert MessageFilter().tag_codes() is None
    assert kept(again, spans({"TAGS": "BB", "a": "1"}, {"TAGS": "C#", "a": "1"})) == [0]
