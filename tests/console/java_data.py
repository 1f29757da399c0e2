"""What pages show, made by the official Java client: orders with tags, keys and properties, lag, retries, dead letters,
an ordered group that waits at a message, messages that are due later, and an open transaction."""

import time
from contextlib import suppress
from typing import NamedTuple

from tests.interop.driver import Driver, Failed
from tests.interop.messages import hexed, numbered, pull_all

FAILING, ORDERS = 2, 12
HOSTILE = '<img src=x onerror="document.title=1">'


class Made(NamedTuple):
    """`orders`: ids of the messages that the group has read, in the order of their sending; `half`: of the open one."""

    orders: list[str]
    half: str


def make(client: Driver) -> Made:
    """The topics `orders`, `steps` and `payments` exist. The consumers `ordered` and `idle` stay connected."""
    orders = _send(client, "orders", numbered("order", ORDERS), keys="k1 k2", **{"property.shop": "north"})
    _send(client, "orders", numbered("fails", FAILING), tags="bad", **{"property.failures": "9"})
    client.ask("consume", name="billing", group="billing", topic="orders", maxReconsumeTimes=1)
    client.ask("consume", name="idle", group="idle", topic="orders", tags="none")
    _send(client, "steps", hexed("first", "second"), **{"property.failures": "99"})
    client.ask("consume", name="ordered", group="ordered", topic="steps", orderly="yes", suspendMs=30_000)
    client.await_count("ordered", 1)
    client.await_count("billing", ORDERS + 2 * FAILING)
    _await_dead_letters(client, "billing")
    client.ask("stop", name="billing")
    _send(client, "orders", hexed(HOSTILE, "unread"), tags="<b>", keys='"k"', **{"property.<i>": HOSTILE})
    _send(client, "orders", hexed("later"), delayLevel=6)
    half = {"property.first": "UNKNOW", "property.checked": "COMMIT_MESSAGE", "property.unknown": "999"}
    [open_half] = client.ask(
        "transact", group="shop-tx", topic="payments", keys="tx1", body=hexed("paid"), **half
    )
    return Made(orders, str(open_half["msgId"]))


def _send(client: Driver, topic: str, bodies: list[str], tags: str = "new", **others: object) -> list[str]:
    sent = client.ask("send", group="shop", topic=topic, tags=tags, body=bodies, **others)
    return [str(event["msgId"]) for event in sent]


def _await_dead_letters(client: Driver, group: str) -> None:
    deadline, found = time.monotonic() + 40, 0
    while found < FAILING:
        assert time.monotonic() < deadline, f"{found} dead letters"
        time.sleep(0.2)
        with suppress(Failed):  # the topic is made with the first
            found = len(pull_all(client, f"%DLQ%{group}", 0))
