"""fastjson: reads what Java writes, reads back what we write, and takes nothing else for a value."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.protocol.fastjson import (
    DEPTH_MAX,
    LENIENT_BYTES_MAX,
    JsonError,
    dumps,
    loads,
    message_queue,
    pretty,
)
from firearrow._native.protocol.message_queue import MessageQueue

queues = st.builds(MessageQueue, st.text(), st.text(), st.integers(-(2**31), 2**31 - 1))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(st.integers(-(2**31), 2**31 - 1), inner, max_size=4)
        | st.dictionaries(queues, inner, max_size=3)
    ),
    max_leaves=20,
)


def with_text_keys(value: object) -> object:
    """As `loads` returns it: integer keys are strings."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, MessageQueue) else str(key): with_text_keys(item)
            for key, item in value.items()
        }
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_what_is_written_is_read_back(value: object) -> None:
    assert loads(dumps(value)) == with_text_keys(value)
    assert loads(pretty(value)) == with_text_keys(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:10,1:20}", {"0": 10, "1": 20}),
        ("{ -1 : [1,2] }", {"-1": [1, 2]}),
        ('{"a{1:":{1:2}}', {"a{1:": {"1": 2}}),
        ('{"x\\",{3:4":5,6:7}', {'x",{3:4': 5, "6": 7}),
        ('{{"brokerName":"b","queueId":1,"topic":"t"}:10}', {MessageQueue("t", "b", 1): 10}),
        ('{a:1,"b":[true,false,null,-1.5e3,],}', {"a": 1, "b": [True, False, None, -1500.0]}),
        ('{"m":{"$ref":"$.x"}}', {"m": {"$ref": "$.x"}}),
        ('{"v":1}\n', {"v": 1}),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_forms_of_fastjson_are_read(text: str, value: object) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 0.0]}, b'{"a":[true,null,0.0],"b":1}'),
        ({10: 1, 9: 2}, b"{9:2,10:1}"),
        (
            {"offsetTable": {MessageQueue("t", "b", 0): 5}},
            b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}',
        ),
        ({"set": [MessageQueue("t", "b", 0)]}, b'{"set":[{"brokerName":"b","queueId":0,"topic":"t"}]}'),
        ({"ü\n": '"\\'}, '{"ü\\n":"\\"\\\\"}'.encode()),
    ],
)
def test_members_are_sorted_and_no_space_is_written(value: object, text: bytes) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize("text", [": ", '": ', 'a ": b', '\\": ', "a: b", '"', "\\"])
def test_pretty_does_not_change_strings(text: str) -> None:
    for value in ({"a": text}, {text: "a"}, {"a": {"b": [text, {text: text}]}}):
        assert loads(pretty(value)) == value
        assert b'": ' not in pretty({"a": 1, "b": [text.replace(": ", "")]})


@pytest.mark.parametrize("key", [1, "1"])
def test_pretty_puts_each_member_on_a_separate_line(key: int | str) -> None:
    value = {"list": ["a"], "empty": {}, "none": [], "map": {key: {'x": \n  ': '": \n  '}}}
    name = orjson.dumps(key).decode()
    assert pretty(value).decode() == (
        '{\n\t"empty":{},\n\t"list":[\n\t\t"a"\n\t],\n\t"map":{\n\t\t'
        + name
        + ':{\n\t\t\t"x\\": \\n  ":"\\": \\n  "\n\t\t}\n\t},\n\t"none":[]\n}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1",
        "{1}",
        '{"a":}',
        '{"a" 1}',
        "{}x",
        "[1 2]",
        '{{"topic":1}:2}',
        '{{"brokerName":"b","queueId":18446744073709551616,"topic":"t"}:5}',
        "{[1]:2}",
        '"open',
        "nul",
        "'a'",
    ],
)
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        loads(text)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]:,"0123456789a\\ \n-$', max_size=60).map(str.encode))
def test_any_bytes_are_a_value_or_a_json_error(raw: bytes) -> None:
    try:
        value = loads(raw)
    except JsonError:
        return
    assert value is None or isinstance(value, bool | int | float | str | list | dict)


def test_lenient_text_is_read_up_to_the_depth_limit() -> None:
    deep = "[" * (DEPTH_MAX + 1) + "{a:1}" + "]" * (DEPTH_MAX + 1)
    with pytest.raises(JsonError, match="nested deeper"):
        loads(deep)
    assert loads(deep[2:-2]) is not None


def test_length_is_bounded() -> None:
    assert loads("[1]", bytes_max=3) == [1]
    with pytest.raises(JsonError, match="4 bytes, at most 3"):
        loads("[10]", bytes_max=3)
    with pytest.raises(JsonError, match="leniently"):
        loads(b"{a:1}" + b" " * LENIENT_BYTES_MAX)


def test_no_foreign_object_or_endless_nesting_is_written() -> None:
    with pytest.raises(TypeError):
        dumps({(1, 2): 3})
    with pytest.raises(TypeError):
        dumps({1: object()})
    deep: list[object] = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    with pytest.raises(TypeError):
        pretty({0: deep})


def test_only_complete_queues_are_message_queues() -> None:
    assert message_queue({"topic": "t", "queueId": 3}) == MessageQueue("t", "", 3)
    for value in ({"topic": "t"}, {"topic": 1, "queueId": 0}, {"topic": "t", "queueId": True}, "t", None):
        assert message_queue(value) is None
