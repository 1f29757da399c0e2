"""Messages to be sent: properties as text, batch bodies, unique ids."""

import struct
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from firearrow._native.store.log.batch import items_of
from firearrow._native.wire.message_properties import batch_body, message_properties
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.base.message import Message, decode_properties

MIDDLE = datetime(2026, 11, 15, 12)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def since_month(moment: datetime) -> int:
    """ms by the local clock's calendar."""
    return ms(moment) - ms(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0))


def ids(host: bytes = bytes([10, 0, 0, 7])) -> UniqueIds:
    return UniqueIds(host, 0x12345, b"\xab\xcd\xef\x01")


@pytest.fixture(params=["UTC", "Asia/Shanghai", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_an_id_contains_address_process_salt_time_and_number() -> None:
    made, elapsed = ids(), since_month(MIDDLE)
    assert made.at(ms(MIDDLE)) == "0A000007" + "2345" + "ABCDEF01" + f"{elapsed:08X}" + "0000"
    assert made.at(ms(MIDDLE) + 1) == "0A000007" + "2345" + "ABCDEF01" + f"{elapsed + 1:08X}" + "0001"
    assert (made.length, ids(bytes(16)).length, len(ids(bytes(16)).next())) == (32, 56, 56)


def test_the_number_wraps_and_ids_of_one_moment_differ() -> None:
    made = ids()
    many = [made.at(ms(MIDDLE)) for _ in range(65536)]
    assert len(set(many)) == 65536
    assert many[-1].endswith("FFFF")
    assert made.at(ms(MIDDLE)).endswith("0000")


@pytest.mark.parametrize("month", range(1, 13))
def test_time_counts_from_the_month_of_the_local_clock(zone: str, month: int) -> None:
    """In some zones clocks change during the month."""
    made = ids()
    last = datetime(2026 + month // 12, month % 12 + 1, 1) - timedelta(milliseconds=1)
    for moment in (datetime(2026, month, 1), datetime(2026, month, 28, 3, 4, 5), last):
        assert made.at(ms(moment))[20:28] == f"{since_month(moment):08X}"
    assert made.at(ms(last) + 1)[20:28] == "00000000"


def test_a_small_step_back_of_the_clock_is_ignored() -> None:
    made, first = ids(), MIDDLE.replace(day=1, hour=0)
    made.at(ms(first))
    assert made.at(ms(first) - 999_999)[20:28] == "00000000"
    assert made.at(ms(first) - 1_000_000)[20:28] == struct.pack(">i", -1_000_000).hex().upper()


def test_an_id_of_now_contains_the_time() -> None:
    before = datetime.now()
    assert 0 <= int(ids().next()[20:28], 16) - since_month(before) < 60_000


@pytest.mark.parametrize(("host", "salt"), [(bytes(5), bytes(4)), (bytes(4), bytes(3))])
def test_ids_need_an_address_and_a_salt(host: bytes, salt: bytes) -> None:
    with pytest.raises(ValueError, match="unique id"):
        UniqueIds(host, 1, salt)


@pytest.mark.parametrize(
    ("delay", "name", "value"),
    [
        ({"delay_level": 3}, "DELAY", "3"),
        ({"delay_s": 1.5}, "TIMER_DELAY_MS", "1500"),
        ({"delay_s": 0}, "TIMER_DELAY_MS", "0"),
        ({"deliver_at_ms": 77}, "TIMER_DELIVER_MS", "77"),
    ],
)
def test_all_fields_of_a_message_become_properties(delay: dict[str, Any], name: str, value: str) -> None:
    message = Message(
        "t",
        b"",
        tags="tag",
        keys=["a", "b"],
        properties={"own": "ö"},
        sharding_key="s",
        priority=2,
        wait_store=False,
        unique_id="ID",
        **delay,
    )
    text = message_properties(message, ids(), {"PGROUP": "g"})
    assert decode_properties(text) == {
        "own": "ö",
        "KEYS": "a b",
        "UNIQ_KEY": "ID",
        "WAIT": "false",
        "TAGS": "tag",
        "__SHARDINGKEY": "s",
        "_SYS_MSG_PRIORITY_": "2",
        "PGROUP": "g",
        name: value,
    }


@pytest.mark.parametrize(
    ("extras", "named"),
    [
        ({"delay_level": 1, "delay_s": 1}, "only one of"),
        ({"delay_level": 1, "deliver_at_ms": 0}, "only one of"),
        ({"delay_s": 0, "deliver_at_ms": 0}, "only one of"),
        ({"delay_level": -1}, "delay_level"),
        ({"delay_level": 1 << 31}, "delay_level"),
        ({"delay_level": "3"}, "delay_level"),
        ({"delay_s": -0.001}, "delay_s"),
        ({"delay_s": float("nan")}, "delay_s"),
        ({"delay_s": float("inf")}, "delay_s"),
        ({"delay_s": 1e300}, "delay_s in ms: 1[0-9]{39} is not"),
        ({"delay_s": "3"}, "delay_s"),
        ({"deliver_at_ms": -1}, "deliver_at_ms"),
        ({"deliver_at_ms": 1 << 63}, "deliver_at_ms"),
        ({"priority": -1}, "priority"),
        ({"priority": 1 << 31}, "priority"),
        ({"tags": 1}, "TAGS"),
        ({"keys": [1]}, "keys"),
        ({"properties": {"k": ""}}, "'k'"),
        ({"properties": {"": "v"}}, "''"),
        ({"properties": {"k": 1}}, "'k'"),
        ({"properties": {1: "v"}}, "property 1"),
    ],
)
def test_invalid_values_are_refused_by_name(extras: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        message_properties(Message("t", b"", **extras), ids())


@pytest.mark.parametrize(
    "extras",
    [
        {"delay_level": (1 << 31) - 1},
        {"deliver_at_ms": (1 << 63) - 1},
        {"priority": 0},
        {"priority": (1 << 31) - 1},
    ],
)
def test_numbers_at_their_limits_are_accepted(extras: dict[str, Any]) -> None:
    assert (
        str(*extras.values())
        in decode_properties(message_properties(Message("t", b"", **extras), ids())).values()
    )


def test_a_message_gets_its_id_once() -> None:
    message, made = Message("t", b""), ids()
    first = message_properties(message, made)
    assert message.unique_id is not None
    assert first == b"UNIQ_KEY\x01" + message.unique_id.encode() + b"\x02WAIT\x01true\x02"
    assert message_properties(message, made) == first


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", tags="a\x01b"),
        Message("t", b"", properties={"a\x02": "b"}),
        Message("t", b"", keys=["a\x02"]),
        Message("t", b"", tags="\ud800"),
    ],
)
def test_separators_and_non_strings_are_refused(message: Message) -> None:
    with pytest.raises(ValueError, match=r"property|surrogates"):
        message_properties(message, ids())


def test_properties_have_a_limit() -> None:
    fits = Message("t", b"", properties={"k": "x" * (32767 - 3)}, unique_id="")
    over = len(message_properties(Message("t", b"", unique_id=""), ids()))
    fits.properties["k"] = fits.properties["k"][over:]
    assert len(message_properties(fits, ids())) == 32767
    fits.properties["k"] += "x"
    with pytest.raises(ValueError, match="32768 bytes"):
        message_properties(fits, ids())


def test_a_batch_contains_every_message_with_its_own_properties() -> None:
    messages = [
        Message("t", b"", flag=-1),
        Message("t", bytes(range(256)), tags="x"),
        Message("t", b"z", flag=7),
    ]
    items = items_of(batch_body(messages, ids()))
    assert [(flag, body) for flag, body, _ in items] == [(-1, b""), (0, bytes(range(256))), (7, b"z")]
    assert [decode_properties(text)["UNIQ_KEY"] for _, _, text in items] == [m.unique_id for m in messages]
    assert len({message.unique_id for message in messages}) == 3


def test_a_batch_stays_within_a_frame() -> None:
    with pytest.raises(ValueError, match="batch"):
        batch_body([Message("t", bytes(9 << 20))] * 2, ids())
