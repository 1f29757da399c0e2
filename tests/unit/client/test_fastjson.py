"""The JSON of Java's clients, both ways; any input gives a value or a JsonError."""

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.fastjson import DEPTH_MAX, JsonError
from firearrow.client.base.message import MessageQueue

QUEUE = MessageQueue("Topic", "broker-a", 1)
KEY = '{"brokerName":"broker-a","queueId":1,"topic":"Topic"}'
INFO = (
    b'{"mqPopTable":{{"brokerName":"broker-a","queueId":-1,"topic":"Topic"}:{"droped":false,"lastPopTimestamp":0,'
    b'"waitAckCount":0}},"properties":{"PROP_CONSUMEORDERLY":"false"},"statusTable":{"Topic":{"pullTPS":0.0}},'
    b'"subscriptionSet":[{"classFilterMode":false,"codeSet":[97,98],"subString":"a || b"}],"userConsumerInfo":{}}'
)
"""Written by Java 5.5.0, shortened."""

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
texts = st.text(st.characters(codec="utf-8"))
queues = st.builds(MessageQueue, texts, texts, st.integers(-(1 << 31), (1 << 31) - 1))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | queues, inner, max_size=4),
    max_leaves=12,
)


def test_what_java_wrote_comes_out_as_it_went_in() -> None:
    assert fastjson.dumps(fastjson.loads_answer(INFO), is_sorted=False) == INFO


def test_queues_are_keys() -> None:
    assert fastjson.loads_answer(f'{{"offsetTable":{{{KEY}:5}}}}') == {"offsetTable": {QUEUE: 5}}
    assert fastjson.dumps({"offsetTable": {QUEUE: 5}}) == f'{{"offsetTable":{{{KEY}:5}}}}'.encode()


def test_a_file_has_queues_in_the_form_of_java() -> None:
    """A member a line, also those of a key."""
    key = '\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"Topic"\n\t\t'
    text = f'{{\n\t"offsetTable":{{\n\t\t{{{key}}}:5\n\t}}\n}}'
    assert fastjson.pretty({"offsetTable": {QUEUE: 5}}, is_sorted=False).decode() == text


def test_a_key_that_names_no_broker_is_refused() -> None:
    with pytest.raises(JsonError, match="without valid topic, brokerName or queueId"):
        fastjson.loads_answer('{"offsetTable":{{"queueId":1,"topic":"Topic"}:5}}')


def test_bare_numbers_are_keys_and_a_comma_may_hang() -> None:
    assert fastjson.loads_answer('{0:"a", -1 : [1,2,],}') == {"0": "a", "-1": [1, 2]}
    assert fastjson.dumps({0: "a"}) == b'{0:"a"}'


def test_offsets_come_as_a_map_by_objects_by_texts_or_as_a_list() -> None:
    as_text = json.dumps({KEY: 5})
    as_list = '[{"brokerName":"broker-a","offset":5,"queueId":1,"topic":"Topic"}]'
    for text in (f"{{{KEY}:5}}", as_text, as_list):
        assert fastjson.queue_offsets(fastjson.loads_answer(text)) == {QUEUE: 5}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5", "must be a map from queues to offsets"),
        ('{"no queue":5}', "no value at byte 0"),
        ('{"5":5}', "a message queue must be an object"),
        ('[{"brokerName":"b","queueId":1,"topic":"t"}]', "the offset is not a number"),
        ('[{"brokerName":"b","queueId":1,"topic":"t","offset":true}]', "the offset is not a number"),
        (
            '[{"brokerName":"b","queueId":1,"topic":"t","offset":9223372036854775808}]',
            "the offset is not a number",
        ),
        (
            '[{"brokerName":"b","queueId":2147483648,"topic":"t","offset":1}]',
            "without valid topic, brokerName or queueId",
        ),
        ('[{"brokerName":"b","queueId":1,"offset":1}]', "without valid topic, brokerName or queueId"),
        ("[5]", "a message queue must be an object"),
    ],
)
def test_invalid_offsets_are_refused(text: str, says: str) -> None:
    with pytest.raises(JsonError, match=says):
        fastjson.queue_offsets(fastjson.loads_answer(text))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[", '{"a"', '{"a":', '{"a":1', "[1", "[1 2]", "{{}:1}", '{{"topic":"t"}:1}', "nul", "NaN",
     "{a:Infinity}", '"\\x"', "1 2", "{:1}", "{,}", "9" * 5000, "'a'", b"\xff\xfe", "\x00"],
)  # fmt: skip
def test_invalid_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(JsonError):
        fastjson.loads_answer(text)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000, "{{" * 100_000, "[0,{0:" * 100_000])
def test_depth_has_an_end(deep: str) -> None:
    with pytest.raises(JsonError, match=f"nested deeper than {DEPTH_MAX}|no value|no key"):
        fastjson.loads_answer(deep)


def test_depth_ends_where_it_says() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "{0:1}" + "]" * depth

    assert fastjson.loads_answer(nested(DEPTH_MAX - 1)), "the number within is a level, too"
    with pytest.raises(JsonError, match="nested deeper"):
        fastjson.loads_answer(nested(DEPTH_MAX))


def test_size_ends_where_it_says() -> None:
    whole = b" " * (fastjson.ANSWER_BYTES_MAX - 1) + b"5"
    assert fastjson.loads_answer(whole) == 5
    with pytest.raises(JsonError, match=f"at most {fastjson.ANSWER_BYTES_MAX}"):
        fastjson.loads_answer(whole + b" ")


@given(values)
@example({QUEUE: {QUEUE: [QUEUE.topic]}})
def test_what_is_written_is_read(value: object) -> None:
    for write in (fastjson.dumps, fastjson.pretty):
        assert fastjson.loads_answer(write(value, is_sorted=False)) == value


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 64, 10**300])
def test_integers_beyond_64_bits_are_exact(number: int) -> None:
    assert fastjson.loads_answer(f"[{number}]") == [number], "JSON"
    assert fastjson.loads_answer(f"{{0:{number}}}") == {"0": number}, "and what is none"


def test_deep_and_long_is_read_or_refused() -> None:
    """`json` reads long integers, and goes deeper since Python 3.12; 1024 levels, those of orjson, are the limit."""
    with suppress(JsonError):
        assert fastjson.loads_answer("[" * 1020 + "9" * 19 + "]" * 1020)
    with pytest.raises(JsonError, match="nested deeper"):
        fastjson.loads_answer("[" * 1025 + "9" * 19 + "]" * 1025)


@given(scalars | st.lists(scalars) | st.dictionaries(st.text(), scalars))
def test_all_json_is_read(value: object) -> None:
    assert fastjson.loads_answer(json.dumps(value)) == value


@given(st.binary() | st.text(alphabet='{}[]":,\\ 019-truefalsenl\n'))
def test_noise_is_a_value_or_refused(noise: bytes | str) -> None:
    try:
        fastjson.loads_answer(noise)
    except JsonError:
        pass


@given(st.integers(0, len(INFO) - 1), st.integers(0, 255))
def test_a_changed_byte_is_a_value_or_refused(at: int, byte: int) -> None:
    try:
        fastjson.loads_answer(INFO[:at] + bytes([byte]) + INFO[at + 1 :])
    except JsonError:
        pass


@given(st.integers(0, len(INFO) - 1))
def test_a_cut_text_is_refused(at: int) -> None:
    with pytest.raises(JsonError):
        fastjson.loads_answer(INFO[:at])


def test_queues_as_keys_are_read_in_any_place() -> None:
    """By the fast way, and with a NUL in a string by the slow one: the same."""
    queue = b'{"brokerName":"b","queueId":1,"topic":"T"}'
    found = fastjson.MessageQueue("T", "b", 1)
    for text, wanted in (
        (b"{%b:1}" % queue, {found: 1}),
        (b'{"a":[{"x":{%b:{"y":2}}}],"z":"\\u00e9"}' % queue, {"a": [{"x": {found: {"y": 2}}}], "z": "é"}),
        (b'{%b:{"m":{%b:3}},"k":4}' % (queue, queue), {found: {"m": {found: 3}}, "k": 4}),
        (b'{"text":"{\\"brokerName\\":\\"b\\"}",%b:5}' % queue, {"text": '{"brokerName":"b"}', found: 5}),
        (b'{"nul":"\\u0000",%b:6}' % queue, {"nul": "\0", found: 6}),
        (b'{"queue":%b}' % queue, {"queue": {"brokerName": "b", "queueId": 1, "topic": "T"}}),
    ):
        assert fastjson.loads_answer(text) == wanted, text
    for wrong in (b'{{"brokerName":"b","queueId":99999999999,"topic":"T"}:1}', b'{{"brokerName":"b"}:1}'):
        with pytest.raises(fastjson.JsonError):
            fastjson.loads_answer(wrong)
