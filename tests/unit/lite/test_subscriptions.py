"""Subscriptions to lite topics and their events, with a manual clock: who gets what, bounds, and who is forgotten."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.lite import ADDS_PER_SECOND, LiteMethods
from firearrow.broker.grpc.statuses import GrpcRefusal
from firearrow.broker.lite.subscriptions import LiteClient
from firearrow.broker.pop.order_info import ATTEMPT_CHARS_MAX
from tests.support.clock import ManualClock
from tests.unit.lite.lite_harness import G, LiteHarness, T

CTL, POP = RequestCode.LITE_SUBSCRIPTION_CTL, RequestCode.POP_LITE_MESSAGE


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LiteHarness]:
    found = LiteHarness(tmp_path)
    yield found
    found.close()


def sync(harness: LiteHarness, client: str, *names: str, action: str = "PARTIAL_ADD", **more: object) -> int:
    entry = {"action": action, "clientId": client, "group": G, "topic": T, "liteTopicSet": list(names)} | more
    answer = harness.ask(CTL, {}, json.dumps({"subscriptionSet": [entry]}).encode())
    assert answer is not None
    return answer.code


def pop(harness: LiteHarness, client: str, count: int = 32, **more: str) -> list[str] | int:
    """The orderCountInfo of an answer with messages, else its code."""
    ext = {
        "clientId": client,
        "consumerGroup": G,
        "topic": T,
        "maxMsgNum": str(count),
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": "0",
    }
    answer = harness.ask(POP, ext | more)
    assert answer is not None
    if answer.code:
        return answer.code
    assert answer.text("reviveQid") == "999"
    return answer.text("orderCountInfo").split(";")


def arrive(harness: LiteHarness, *names: str) -> None:
    for name in names:
        harness.send(name)
    harness.service.events.arrived((f"%LMQ%${T}${name}", 0) for name in dict.fromkeys(names))


def test_a_pop_takes_from_all_lite_topics_with_messages(harness: LiteHarness) -> None:
    sync(harness, "c", "a", "b")
    arrive(harness, "a", "b", "b", "z")
    assert pop(harness, "c") == ["0", "0", "0"]
    assert pop(harness, "c") == ResponseCode.POLLING_TIMEOUT


def test_a_pop_takes_no_more_than_it_asks_for(harness: LiteHarness) -> None:
    sync(harness, "c", "a", "b")
    arrive(harness, "a", "a", "b")
    assert pop(harness, "c", 1) == ["0"]
    assert pop(harness, "c", 5) == ["0"], "the rest of the first queue waits for the acknowledgement"


def test_clients_without_subscriptions_are_not_kept(harness: LiteHarness) -> None:
    """Any number of them could be named."""
    for action in ("PARTIAL_ADD", "COMPLETE_ADD", "PARTIAL_REMOVE"):
        sync(harness, f"empty {action}", action=action)
    assert sync(harness, "full", *(f"n{n}" for n in range(2400))) != 0
    for n, action in enumerate(("PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE")):
        sync(harness, f"c{n}", "a")
        assert len(harness.service.subscriptions.clients_of(G)) == 1
        sync(harness, f"c{n}", *(["a"] if action == "PARTIAL_REMOVE" else []), action=action)
        assert harness.service.subscriptions.clients_of(G) == [], action


def test_no_more_of_an_attempt_is_kept_than_is_compared(harness: LiteHarness) -> None:
    """Clients choose it: a gRPC request may have 4 MiB of it."""
    sync(harness, "c", "a")
    arrive(harness, "a")
    for _ in range(2):
        assert pop(harness, "c", attemptId="x" * 10_000) == ["0"]
    [(attempt, _)] = harness.service.events._attempts.values()
    assert len(attempt) == ATTEMPT_CHARS_MAX


def test_a_repeated_attempt_gets_the_same_messages(harness: LiteHarness) -> None:
    sync(harness, "c", "a", "b")
    arrive(harness, "a", "b")
    assert pop(harness, "c", attemptId="1") == ["0", "0"]
    assert pop(harness, "c", attemptId="1") == ["0", "0"]
    assert pop(harness, "c", attemptId="2") == ResponseCode.POLLING_TIMEOUT


def test_messages_that_were_there_before_the_subscription(harness: LiteHarness) -> None:
    harness.send("a")
    sync(harness, "c", "a")
    assert pop(harness, "c") == ["0"]


def test_who_ends_leaves_its_events_to_others_of_its_group(harness: LiteHarness) -> None:
    sync(harness, "c", "a")
    sync(harness, "d", "a")
    arrive(harness, "a")
    sync(harness, "c", action="COMPLETE_REMOVE")
    assert pop(harness, "d") == ["0"]
    assert harness.service.subscriptions.get(LiteClient(G, "c")) is None


def test_clients_that_do_not_repeat_their_subscription_are_forgotten(harness: LiteHarness) -> None:
    sync(harness, "c", "a")
    harness.clock.advance(100_000)
    sync(harness, "d", "a")
    harness.clock.advance(100_000)
    harness.lite._expire_subscriptions()
    assert harness.service.subscriptions.clients_of(G) == [LiteClient(G, "d")]
    assert harness.service.subscriptions.count == 1


def test_clients_of_a_deleted_group_are_forgotten(harness: LiteHarness) -> None:
    sync(harness, "c", "a")
    harness.lite_context.tables.groups.delete(G)
    harness.lite._expire_subscriptions()
    assert harness.service.subscriptions.count == 0


def test_a_client_is_bounded_by_its_group(harness: LiteHarness) -> None:
    limit = 2000 + 300
    assert sync(harness, "c", *(f"n{n}" for n in range(limit))) == 0
    assert sync(harness, "c", "one-more") == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert sync(harness, "c", "n5") == 0, "it has this one"
    names = [f"m{n}" for n in range(limit + 1)]
    assert sync(harness, "c", *names, action="COMPLETE_ADD") == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert harness.service.subscriptions.count == limit


def test_all_clients_are_bounded_together(tmp_path: Path) -> None:
    harness = LiteHarness(tmp_path, lite_subscriptions_max=3)
    assert sync(harness, "c", "a", "b") == 0
    assert sync(harness, "d", "a", "b") == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert sync(harness, "d", "a") == 0
    assert sync(harness, "c", "x", "y", action="COMPLETE_ADD") == 0, "no more than before"
    assert sync(harness, "c", "a", action="COMPLETE_ADD") == 0
    harness.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ResponseCode.ILLEGAL_OPERATION),
        (b"{}", ResponseCode.ILLEGAL_OPERATION),
        (b"[]", ResponseCode.INVALID_PARAMETER),
        (b'{"subscriptionSet":[{"action":"ADD"}]}', ResponseCode.INVALID_PARAMETER),
        (
            b'{"subscriptionSet":[{"action":"PARTIAL_ADD","liteTopicSet":["a$b"]}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            b'{"subscriptionSet":[{"action":"PARTIAL_ADD","liteTopicSet":[5]}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
    ],
)
def test_malformed_subscriptions_are_refused(harness: LiteHarness, body: bytes, code: int) -> None:
    answer = harness.ask(CTL, {}, body)
    assert answer is not None
    assert answer.code == code


@pytest.mark.parametrize(("count", "code"), [(64, 0), (65, ResponseCode.INVALID_PARAMETER)])
def test_entries_of_a_request_are_bounded(harness: LiteHarness, count: int, code: int) -> None:
    entry = {"action": "PARTIAL_ADD", "clientId": "c", "group": G, "topic": T, "liteTopicSet": ["a"]}
    answer = harness.ask(CTL, {}, json.dumps({"subscriptionSet": [entry] * count}).encode())
    assert answer is not None
    assert answer.code == code


@pytest.mark.parametrize(("chars", "code"), [(1024, 0), (1025, ResponseCode.INVALID_PARAMETER)])
def test_characters_of_a_client_id_are_bounded(harness: LiteHarness, chars: int, code: int) -> None:
    assert sync(harness, "c" * chars, "a") == code


def test_a_group_of_another_topic_is_refused(harness: LiteHarness) -> None:
    entry = {"action": "PARTIAL_ADD", "clientId": "c", "group": G, "topic": "U", "liteTopicSet": ["a"]}
    answer = harness.ask(CTL, {}, json.dumps({"subscriptionSet": [entry]}).encode())
    assert answer is not None
    assert answer.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(("chars", "code"), [(64, 0), (65, ResponseCode.INVALID_PARAMETER)])
def test_names_are_bounded(harness: LiteHarness, chars: int, code: int) -> None:
    assert sync(harness, "c", "x" * chars) == code


def test_additions_in_a_second_are_bounded() -> None:
    clock = ManualClock()
    context = SimpleNamespace(clock=clock, tables=SimpleNamespace(groups=None))
    methods = LiteMethods(cast(GrpcContext, context))
    for _ in range(ADDS_PER_SECOND):
        methods._count_add(T, G, "c")
    with pytest.raises(GrpcRefusal, match="Too many syncLiteSubscription requests"):
        methods._count_add(T, G, "c")
    clock.advance(1000)
    methods._count_add(T, G, "c")
