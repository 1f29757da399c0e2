"""Subscription: what a group reads of one topic, as pulls and heartbeats report it.

`check_filters` lets brokers check the filters of a consumer, which would otherwise wait for messages that
never come.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
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
    """`tags` and their hashes `codes` are empty for all messages and for SQL.

    `version` (ms) grows with each change. `since`: when it was made, ms.
    """

    topic: str
    expression: str
    kind: Kind
    tags: frozenset[str]
    codes: frozenset[int]
    version: int
    since: int = field(default=0, compare=False)

    @staticmethod
    def of(topic: str, tags: str | None = None, sql: str | None = None) -> "Subscription":
        """`tags` are separated by `||`; None, empty and `*` mean all.

        ConfigError: both or an unusable filter.
        """
        now_ms = int(time.time() * 1000)
        if sql is not None:
            if tags is not None:
                raise ConfigError(f"{topic}: set tags or sql, not both")
            if not sql.strip():
                raise ConfigError(f"{topic}: the SQL expression is empty")
            return Subscription(topic, sql, "SQL92", frozenset(), frozenset(), now_ms, now_ms)
        if not tags or tags == ALL:
            return Subscription(topic, ALL, "TAG", frozenset(), frozenset(), now_ms, now_ms)
        names = frozenset(tag.strip() for tag in tags.split("||") if tag.strip())
        if not names:
            raise ConfigError(f"{topic}: no tag in {tags!r}")
        return Subscription(topic, tags, "TAG", names, frozenset(map(java_hash, names)), now_ms, now_ms)

    def renewed(self, now_ms: int) -> "Subscription":
        """The same with a newer version; brokers refuse pulls that are newer than the last heartbeat."""
        return replace(self, version=max(now_ms, self.version + 1))

    def heartbeat_json(self) -> dict[str, object]:
        return {
            "classFilterMode": False,
            "topic": self.topic,
            "subString": self.expression,
            "tagsSet": sorted(self.tags),
            "codeSet": sorted(self.codes),
            "subVersion": self.version,
            "expressionType": self.kind,
        }


async def check_filters(
    instance: ClientInstance, group: str, subscriptions: Mapping[str, Subscription]
) -> None:
    """Send each SQL filter to one broker of its topic.

    BrokerError: it cannot read the expression. TransportError.
    """
    for topic, subscription in subscriptions.items():
        if subscription.kind == "TAG" or not instance.routes.brokers_of(topic):
            continue
        body = orjson.dumps(
            {
                "clientId": instance.client_id,
                "group": group,
                "subscriptionData": subscription.heartbeat_json(),
            }
        )
        request = partial(RemotingCommand.request, RequestCode.CHECK_CLIENT_CONFIG, body=body)
        answer, address = await instance.call_any(topic, request, instance.options.api_timeout_s)
        check(answer, address)
