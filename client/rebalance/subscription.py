"""Subscription: what a group wants of one topic, as pulls and heartbeats tell the broker.

Asking brokers whether they can read a consumer's filters, before it waits for messages that would never come.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from firearrow._native.base.hash import java_hash
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ConfigError, check
from firearrow.client.remoting.client_instance import ClientInstance

ALL = "*"
Kind = Literal["TAG", "SQL92"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """`tags` and their Java hashes are empty for everything and for SQL. `version` (ms) grows with each change."""

    topic: str
    expression: str
    kind: Kind
    tags: frozenset[str]
    codes: frozenset[int]
    version: int

    @staticmethod
    def of(topic: str, tags: str | None = None, sql: str | None = None) -> "Subscription":
        """Tags are separated by `||`; None, empty and `*` are all. ConfigError: both, or nothing usable in them."""
        now_ms = int(time.time() * 1000)
        if sql is not None:
            if tags is not None:
                raise ConfigError(f"{topic}: tags or sql, not both")
            if not sql.strip():
                raise ConfigError(f"{topic}: the SQL expression is empty")
            return Subscription(topic, sql, "SQL92", frozenset(), frozenset(), now_ms)
        if not tags or tags == ALL:
            return Subscription(topic, ALL, "TAG", frozenset(), frozenset(), now_ms)
        wanted = frozenset(tag.strip() for tag in tags.split("||") if tag.strip())
        if not wanted:
            raise ConfigError(f"{topic}: no tag in {tags!r}")
        return Subscription(topic, tags, "TAG", wanted, frozenset(map(java_hash, wanted)), now_ms)

    def renewed(self, now_ms: int) -> "Subscription":
        """The same with a newer version; brokers refuse pulls that are older than what they were told."""
        return replace(self, version=max(now_ms, self.version + 1))

    def heartbeat_json(self) -> dict[str, object]:
        return {
            "classFilterMode": False, "topic": self.topic, "subString": self.expression, "tagsSet": sorted(self.tags),
            "codeSet": sorted(self.codes), "subVersion": self.version, "expressionType": self.kind,
        }  # fmt: skip


async def check_filters(
    instance: ClientInstance, group: str, subscriptions: Mapping[str, Subscription]
) -> None:
    """One broker of each topic; tags need no asking. BrokerError: it cannot read the expression. TransportError."""
    for topic, wanted in subscriptions.items():
        address = instance.routes.any_broker_of(topic)
        if wanted.kind == "TAG" or address is None:
            continue
        body = {
            "clientId": instance.client_id,
            "group": group,
            "subscriptionData": wanted.heartbeat_json(),
        }
        request = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=orjson.dumps(body))
        check(await instance.call(address, request, instance.options.api_timeout_s), address)
