"""StaticTopic: the logical queues of a topic of Apache 5.x whose queues may move, and which broker holds each now.

Read from a route, asks nobody. A logical queue bears the name of a broker that is none. Never changed; any thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firearrow.client.base.message import MessageQueue, java_order

LOGICAL_BROKER = "__syslo__"
"""What the names of logical brokers begin with; they keep no message themselves."""
NO_HOLDER = LOGICAL_BROKER + "none__"
"""Holds a queue that no broker tells to have."""
GLOBAL_SCOPE = "__global__"


@dataclass(frozen=True, slots=True)
class StaticTopic:
    """`holders`: logical broker and queue number → name of the real broker; in order of the numbers."""

    holders: dict[tuple[str, int], str]

    @staticmethod
    def decode(mappings: Mapping[str, Mapping[str, Any]] | None, queues_max: int) -> "StaticTopic | None":
        """`topicQueueMappingByBroker` of a route. None: the topic is an ordinary one. ValueError, TypeError.

        Of several brokers that tell to have a queue, the one with the highest epoch does.
        """
        if not mappings:
            return None
        totals: dict[str, int] = {}
        claims: dict[tuple[str, int], tuple[int, str]] = {}
        for mapping in mappings.values():
            scope = mapping.get("scope", GLOBAL_SCOPE)
            if scope is None:
                continue
            logical = logical_broker(scope)
            total = _integer(mapping, "totalQueues", queues_max)
            totals[logical] = max(totals.get(logical, 0), total)
            claim = (_integer(mapping, "epoch", (1 << 63) - 1), _broker_name(mapping))
            for number in _numbers(mapping, queues_max):
                key = logical, number
                claims[key] = max(claims.get(key, claim), claim)
        if sum(totals.values()) > queues_max:
            raise ValueError(f"totalQueues: over {queues_max} queues in all")
        keys = [(logical, number) for logical, total in totals.items() for number in range(total)]
        keys.sort(key=lambda key: (key[1], java_order(key[0])))
        return StaticTopic({key: claims[key][1] if key in claims else NO_HOLDER for key in keys})

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, logical, number) for logical, number in self.holders]

    def holder(self, queue: MessageQueue) -> str:
        """A queue that is not among the logical ones is held by the broker that it names."""
        return self.holders.get((queue.broker_name, queue.queue_id), queue.broker_name)


def logical_broker(scope: str) -> str:
    """The name that queues of this scope bear."""
    return LOGICAL_BROKER + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def _integer(mapping: Mapping[str, Any], field: str, most: int) -> int:
    value = mapping.get(field, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{field}: {value!r} is not in 0..{most}")
    return value


def _broker_name(mapping: Mapping[str, Any]) -> str:
    name = mapping.get("bname")
    if not isinstance(name, str) or not name:
        raise ValueError(f"bname: {name!r} is no name of a broker")
    return name


def _numbers(mapping: Mapping[str, Any], queues_max: int) -> list[int]:
    """Of the logical queues that this broker holds."""
    numbers = mapping.get("currIdMap") or {}
    if len(numbers) > queues_max:
        raise ValueError(f"currIdMap: over {queues_max} queues")
    return [int(number) for number in numbers]
