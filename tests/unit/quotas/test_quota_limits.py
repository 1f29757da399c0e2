"""Limits of quotas: names, values, counts; and what is kept when they change."""

import asyncio
import json
import time

import pytest

from firearrow._native.fastpath.quotas import ENTITIES_MAX, IN, TOPIC, USER, Quotas
from firearrow._native.fastpath.quotas import NAME_CHARS_MAX as NAME_MAX
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import counted_address
from firearrow.broker.handlers.quotas import BODY_BYTES_MAX, QuotasHandler
from firearrow.broker.net.dispatch import WAITING_MAX, Dispatch
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import (
    NAME_CHARS_MAX,
    QUOTAS_MAX,
    VALUE_MAX,
    Entity,
    InvalidQuota,
    QuotaTable,
)
from tests.quotas.limited import IN as MESSAGES_IN
from tests.support.peers import RecordedPeer

ONE_A_SECOND = (1.0, 0.0, 0.0, 0.0)


def test_entities_with_a_default() -> None:
    quotas = Quotas()
    quotas.configure(TOPIC, ONE_A_SECOND, {})
    for n in range(ENTITIES_MAX):
        quotas.charge(IN, None, f"t{n}", None, 1, 0, 100.0)
    assert len(quotas.listed(TOPIC)) == ENTITIES_MAX
    quotas.charge(IN, None, "one more", None, 1, 0, 100.0)
    assert [entity.name for entity in quotas.listed(TOPIC)] == ["one more"], "the others owe nothing"


def test_who_owes_something_is_kept() -> None:
    quotas, now = Quotas(), time.monotonic()
    quotas.configure(TOPIC, ONE_A_SECOND, {"named": ONE_A_SECOND})
    quotas.charge(IN, None, "busy", None, 100, 0, now)
    for n in range(ENTITIES_MAX - 1):
        quotas.charge(IN, None, f"t{n}", None, 1, 0, now)
    assert {entity.name for entity in quotas.listed(TOPIC)} >= {"busy", "named"}
    assert quotas.debt(IN, None, "busy", None, now) == pytest.approx(99)


def test_names_of_entities() -> None:
    quotas = Quotas()
    quotas.configure(USER, ONE_A_SECOND, {})
    quotas.charge(IN, "u" * NAME_MAX, "T", None, 10, 0, 5.0)
    quotas.charge(IN, "v" * (NAME_MAX + 1), "T", None, 10, 0, 5.0)
    assert [entity.name for entity in quotas.listed(USER)] == ["u" * NAME_MAX]


def test_a_burst_of_one_second() -> None:
    quotas = Quotas()
    quotas.configure(TOPIC, None, {"T": (10.0, 0.0, 0.0, 0.0)})
    assert quotas.charge(IN, None, "T", None, 10, 0, 50.0) <= 0
    assert quotas.charge(IN, None, "T", None, 5, 0, 50.0) == pytest.approx(0.5)
    assert quotas.debt(IN, None, "T", None, 50.25) == pytest.approx(0.25)
    quotas.configure(TOPIC, None, {"T": (10.0, 0.0, 0.0, 0.0), "U": ONE_A_SECOND})
    assert quotas.debt(IN, None, "T", None, 50.25) == pytest.approx(0.25), "another quota changed"
    quotas.configure(TOPIC, None, {"T": (20.0, 0.0, 0.0, 0.0)})
    assert quotas.debt(IN, None, "T", None, 50.25) <= 0


def test_names_of_quotas() -> None:
    table = QuotaTable()
    table.update(Entity("topic", "t" * NAME_CHARS_MAX), {MESSAGES_IN: 1})
    with pytest.raises(InvalidQuota):
        table.update(Entity("topic", "t" * (NAME_CHARS_MAX + 1)), {MESSAGES_IN: 1})


def test_values() -> None:
    table = QuotaTable()
    table.update(Entity("topic", "t"), {MESSAGES_IN: VALUE_MAX})
    with pytest.raises(InvalidQuota):
        table.update(Entity("topic", "t"), {MESSAGES_IN: VALUE_MAX + 1})
    assert table.value("topic", "t", MESSAGES_IN) == VALUE_MAX


def test_entities_with_quotas() -> None:
    rows = [{"entity": "topic", "name": f"t{n}", MESSAGES_IN: 1} for n in range(QUOTAS_MAX)]
    table = QuotaTable()
    table.load(json.dumps({"quotas": rows}).encode())
    with pytest.raises(InvalidQuota, match="delete one first"):
        table.update(Entity("topic", "another"), {MESSAGES_IN: 1})
    table.update(Entity("topic", "t0"), {MESSAGES_IN: None})
    table.update(Entity("topic", "another"), {MESSAGES_IN: 1})
    with pytest.raises(ValueError, match="at most"):
        QuotaTable().load(
            json.dumps({"quotas": [*rows, {"entity": "topic", "name": "x", MESSAGES_IN: 1}]}).encode()
        )
    again = QuotaTable()
    again.load(table.to_json())
    assert list(again) == list(table)


def test_bytes_of_a_body() -> None:
    check = QuotaCheck(QuotaTable())
    handler = QuotasHandler(check, None)

    def update(size: int) -> RemotingCommand:
        body = json.dumps({MESSAGES_IN: 1}).encode().ljust(size)
        request = RemotingCommand(RequestCode.UPDATE_QUOTA, {"entity": "topic", "name": "T"}, body)
        return handler.update(request, RecordedPeer())

    assert update(BODY_BYTES_MAX).code == 0
    with pytest.raises(Refusal):
        update(BODY_BYTES_MAX + 1)


def test_reads_that_wait() -> None:
    asyncio.run(_fill())


async def _fill() -> None:
    table = QuotaTable()
    check = QuotaCheck(table)
    table.update(Entity("topic", "T"), {"messagesOutPerSecond": 1})
    check.configure()
    ext = {"topic": "T", "consumerGroup": "G", "sysFlag": "2", "suspendTimeoutMillis": "15000"}
    request = RemotingCommand(RequestCode.PULL_MESSAGE, ext)
    check.read(request, "G", "T", 100, 0)
    dispatch = Dispatch([{RequestCode.PULL_MESSAGE: lambda asked, _: asked.answer()}], admission=check)
    peer = RecordedPeer()
    for _ in range(WAITING_MAX):
        dispatch(RemotingCommand(RequestCode.PULL_MESSAGE, ext), peer)
    assert peer.replies == []
    await asyncio.sleep(0)
    dispatch(RemotingCommand(RequestCode.PULL_MESSAGE, ext), peer)
    assert [reply.code for reply in peer.replies] == [2]
    assert peer.throttled, "so that it does not ask again at once"
    await dispatch.drain()
    assert len(peer.replies) == WAITING_MAX + 1, "a broker that stops answers them"


def test_ipv6_addresses_of_a_network_count_as_one() -> None:
    table = QuotaTable()
    check = QuotaCheck(table)
    table.update(Entity("address", "*"), {"connections": 2})
    others = {"2001:db8::1": 1, "2001:db8::2": 1, "2001:db8::/64": 2, "::1": 1}
    assert not check.admits("2001:db8::3", others)
    assert check.admits("2001:db8:0:1::3", others)
    assert check.admits("::1", others)
    table.update(Entity("address", "2001:db8:0:0::7/64"), {"connections": 3})
    assert check.admits("2001:db8::3", others)
    table.update(Entity("address", "2001:0db8::1"), {"connections": 1})
    assert not check.admits("2001:db8::1", others)
    table.update(Entity("address", "::ffff:10.0.0.1"), {"connections": 1})
    assert check.admits("10.0.0.2", {"10.0.0.1": 1})
    assert not check.admits("10.0.0.1", {"10.0.0.1": 1})
    fresh = QuotaTable()
    fresh.load(table.to_json())
    assert list(fresh) == list(table)
    for wrong in ("2001:db8::/48", "10.0.0.0/24", "fe80::1/64/64", "fe80::/64"):
        with pytest.raises(InvalidQuota, match="an IPv6 network such as"):
            table.update(Entity("address", wrong), {"connections": 1})


def test_what_counts_as_one_address() -> None:
    counted = [
        counted_address(host) for host in ("::ffff:10.0.0.1", "fe80::7%eth0", "::1", "10.0.0.1", "", "a:b")
    ]
    assert counted == ["10.0.0.1", "fe80::7", "::1", "10.0.0.1", "", "a:b"]
