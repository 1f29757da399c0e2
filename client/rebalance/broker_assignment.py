"""Requests the members of a group, and the queues that a broker assigns to this member.

Both functions ask a random broker of the topic, and another one if it does not answer. Keeps no state. Event loop only.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MessageModel
from firearrow.client.remoting.client_instance import ClientInstance

TIMEOUT_S = 3.0
MEMBERS_MAX = ASSIGNED_MAX = 65536


class RequestMode(Enum):
    """How to read an assigned queue."""

    PULL = "PULL"
    POP = "POP"


async def consumer_ids(instance: ClientInstance, group: str, topic: str) -> list[str]:
    """The client ids of the group, each once, as a broker of the topic knows them: brokers list a client once for each
    of its connections. ClientError: no broker answered."""

    def request() -> RemotingCommand:
        return RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})

    content = await _ask(instance, topic, request, instance.options.api_timeout_s)
    ids = content.get("consumerIdList")
    if (
        not isinstance(ids, list)
        or len(ids) > MEMBERS_MAX
        or not all(isinstance(client_id, str) for client_id in ids)
    ):
        raise ClientError(f"consumerIdList must be a list of at most {MEMBERS_MAX} strings")
    return list(dict.fromkeys(ids))


async def query_assignment(
    instance: ClientInstance, group: str, topic: str, model: MessageModel, strategy: str
) -> dict[MessageQueue, RequestMode] | None:
    """The queues of this member; queue id -1 is any queue of that broker. ClientError.

    None: the answer has no assignments, so the queues stay as they are. The broker knows the strategies AVG
    and AVG_BY_CIRCLE only.
    """
    body = fastjson.dumps(
        {
            "clientId": instance.client_id,
            "consumerGroup": group,
            "messageModel": model.value,
            "strategyName": strategy,
            "topic": topic,
        },
        is_sorted=False,
    )

    def request() -> RemotingCommand:
        return RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, body=body)

    items = (await _ask(instance, topic, request, TIMEOUT_S)).get("messageQueueAssignments")
    if items is None:
        return None
    if not isinstance(items, list) or len(items) > ASSIGNED_MAX:
        raise ClientError(f"messageQueueAssignments must be a list of at most {ASSIGNED_MAX} assignments")
    try:
        return dict(
            _assigned(item) for item in items if not isinstance(item, dict) or item.get("messageQueue")
        )
    except fastjson.JsonError as error:
        raise ClientError(f"messageQueueAssignments: {error}") from error


def _assigned(item: object) -> tuple[MessageQueue, RequestMode]:
    if not isinstance(item, dict):
        raise fastjson.JsonError("an assignment must be an object")
    mode = RequestMode.POP if item.get("mode") == RequestMode.POP.value else RequestMode.PULL
    return fastjson.queue_of(item["messageQueue"]), mode


async def _ask(
    instance: ClientInstance, topic: str, request: Callable[[], RemotingCommand], timeout_s: float
) -> Mapping[str, object]:
    answer, address = await instance.call_any(topic, request, timeout_s)
    check(answer, address)
    try:
        content = fastjson.loads_answer(answer.body)
    except fastjson.JsonError as error:
        raise ClientError(f"{address}: {error}") from error
    if not isinstance(content, dict):
        raise ClientError(f"{address}: the answer must be a JSON object")
    return content
