"""Names, settings and messages of kombu's transport, without a broker."""

import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("kombu")

import kombu
from hypothesis import given
from hypothesis import strategies as st

import firearrow.client.integrations.kombu  # noqa: F401 (registers the transport)
from firearrow.client import ConfigError, Credentials, TlsOptions
from firearrow.client.base.names import check_topic
from firearrow.client.integrations.kombu.envelope import (
    PASSED_ETA,
    delay_of,
    lifetime_s,
    priority_of,
    to_message,
)
from firearrow.client.integrations.kombu.names import exchange_topic
from firearrow.client.integrations.kombu.revoked import revoked_tasks
from firearrow.client.integrations.kombu.settings import Place, place_of
from firearrow.client.integrations.topic_names import queue_of, topic_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(NAMES, NAMES)
def test_queues_and_exchanges_never_share_a_topic(queue: str, exchange: str) -> None:
    assert topic_of(queue) != exchange_topic(exchange)


def test_topics_of_exchanges() -> None:
    assert exchange_topic("") == "exchange|_"
    assert exchange_topic("celery.pidbox") == "exchange|_celery|2Epidbox"
    check_topic(exchange_topic("x" * 117))
    with pytest.raises(ConfigError, match="128 characters"):
        exchange_topic("x" * 118)
    for topic in ("exchange|_x", "exchange|_"):
        with pytest.raises(ValueError, match="not the topic"):
            queue_of(topic)


def place(url: str | list[str], *, tls: bool = False, **words: Any) -> Place:
    return place_of(kombu.Connection(url, **words), tls=tls)


def test_urls() -> None:
    assert place("rocketmq://").name_server == "localhost:9876"
    assert place("rocketmq://a").name_server == "a:9876"
    full = place("rocketmq://me:s%2Fcret@a:1;b:2/team")
    assert (full.name_server, full.namespace) == ("a:1;b:2", "team")
    assert full.credentials == Credentials("me", "s/cret")
    assert place("rocketmq://a:1//").namespace is None
    assert place(["rocketmq://a:1/team", "rocketmq://b:2/team"]).name_server == "a:1;b:2"
    assert place("rocketmq://[::1]:1").name_server == "[::1]:1"
    assert place("rocketmq://me@a", password=lambda: "fresh").credentials is not None
    after = kombu.Connection("rocketmq://me:x@a:1;b:2/team")
    after.maybe_switch_next()
    assert place_of(after, tls=False).name_server == "a:1;b:2"


def test_tls() -> None:
    assert place("rocketmq://a").tls is False
    assert place("rocketmqs://a", tls=kombu.Connection("rocketmqs://a").transport.tls).tls is True
    assert place("rocketmq://a", ssl=True).tls is True
    files = {"ca_certs": "ca.pem", "certfile": "own.pem", "keyfile": "own.key"}
    assert place("rocketmq://a", ssl=files).tls == TlsOptions(
        authority="ca.pem", certificate="own.pem", key="own.key"
    )
    assert place("rocketmq://a?ssl_ca_certs=ca.pem&ssl_cert_reqs=none").tls == TlsOptions(
        authority="ca.pem", verify=False
    )
    assert place("rocketmq://a", ssl={"cert_reqs": ssl.CERT_NONE}).tls == TlsOptions(verify=False)
    with pytest.raises(ConfigError, match="ciphers is not known"):
        place("rocketmq://a", ssl={"ciphers": "x"})


def test_transport_options() -> None:
    settings = place("rocketmq://a", transport_options={"visibility_timeout": 5, "max_retries": 3}).settings
    assert (settings.visibility_timeout, settings.max_deliveries, settings.recall_revoked) == (5, 16, True)
    for name, value in {"visibility_timeout": 0, "max_deliveries": 0, "queues": "8", "delay_max": 0}.items():
        with pytest.raises(ConfigError, match=name):
            place("rocketmq://a", transport_options={name: value})


def raw(**headers: object) -> dict[str, Any]:
    return {
        "body": "[]",
        "headers": headers,
        "properties": {"correlation_id": "id-1", "delivery_info": {}},
        "content-type": "application/json",
        "content-encoding": "utf-8",
    }


def test_the_eta_is_a_delay() -> None:
    now = datetime.now(UTC)
    for due in (now + timedelta(hours=1), (now + timedelta(hours=1)).replace(tzinfo=None)):
        found = delay_of({"eta": due.isoformat()})
        assert found is not None
        assert 3590 < found <= 3600
    assert delay_of({"eta": (now - timedelta(hours=1)).isoformat()}) == 0
    assert delay_of({"x-delay": 1500}) == 1.5
    for nothing in ({}, {"eta": None}, {"eta": "tomorrow"}, {"eta": 7}, {"x-delay": "1"}, {"x-delay": True}):
        assert delay_of(nothing) is None
    original = raw(eta=(now + timedelta(hours=1)).isoformat(), task="shop.price", id="id-1")
    message = to_message("t", original, 60)
    assert (message.delay_s, message.tags, list(message.keys)) == (60, "shop.price", ["id-1"])
    assert 3500_000 < int(message.properties["kombu_delay_left_ms"]) <= 3540_000
    assert f'"{PASSED_ETA}": "{original["headers"]["eta"]}"' in message.body.decode()
    assert original["headers"]["eta"] is not None
    odd = to_message("t", raw(task="a || b", id="two words"), 60)
    assert (odd.delay_s, odd.tags, list(odd.keys)) == (None, None, [])


@pytest.mark.parametrize(
    ("expiration", "seconds"),
    [
        ("1500", 1.5),
        ("0", 0),
        (None, None),
        ("-1", None),
        ("1e3", None),
        ("9" * 16, None),
        (7, None),
        ([], None),
    ],
)
def test_the_expiration_is_a_lifetime(expiration: object, seconds: float | None) -> None:
    message = raw()
    message["properties"]["expiration"] = expiration
    assert lifetime_s(message) == seconds
    message["headers"]["expires"] = "2026-01-01T00:00:00+00:00"  # of Celery: the worker reports it
    assert lifetime_s(message) is None


@pytest.mark.parametrize(
    ("priority", "found"), [(3, 3), (99, 9), (-1, 0), (None, 0), ("5", 0), (2.5, 0), ([], 0)]
)
def test_priorities(priority: object, found: int) -> None:
    message = raw()
    message["properties"]["priority"] = priority
    assert priority_of(message, 10) == found


@pytest.mark.parametrize(
    ("exchange", "command", "tasks"),
    [
        ("celery.pidbox", '{"method": "revoke", "arguments": {"task_id": "a"}, "destination": null}', ["a"]),
        ("celery.pidbox", '{"method": "revoke", "arguments": {"task_id": ["a", "b", 3, ""]}}', ["a", "b"]),
        ("celery.pidbox", '{"method": "revoke", "arguments": {"task_id": "a"}, "destination": ["w"]}', []),
        ("celery.pidbox", '{"method": "ping", "arguments": {}}', []),
        ("celery.pidbox", '{"method": "revoke"', []),
        ("celery.pidbox", '["revoke"]', []),
        ("other", '{"method": "revoke", "arguments": {"task_id": "a"}}', []),
        (None, '{"method": "revoke", "arguments": {"task_id": "a"}}', []),
    ],
)
def test_which_tasks_a_command_revokes(exchange: str | None, command: str, tasks: list[str]) -> None:
    assert revoked_tasks(exchange, raw() | {"body": command}) == tasks
