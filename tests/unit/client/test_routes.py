"""The route table: which brokers get a topic's messages while routes come and go."""

import orjson
import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import NoRoute
from firearrow.client.remoting.routes import RouteTable


class ScriptedNameServers:
    """`brokers`: topic → name of its broker → id → address; a topic that is not there has no route."""

    def __init__(self, **brokers: dict[str, dict[str, str]]) -> None:
        self.brokers = brokers

    async def call(self, request: RemotingCommand) -> RemotingCommand:
        found = self.brokers.get(request.ext["topic"])
        if found is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST)
        queues = [
            {"brokerName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 7, "topicSysFlag": 0}
            for name in found
        ]
        brokers = [{"cluster": "c", "brokerName": name, "brokerAddrs": ids} for name, ids in found.items()]
        body = orjson.dumps({"queueDatas": queues, "brokerDatas": brokers})
        return request.answer(body=body)


async def test_a_known_topic_whose_brokers_are_away_is_not_created_at_others() -> None:
    """During a promotion a topic has first no master and then no route: its messages do not go to the brokers of the
    template, which would create it (Apache's client: haveTopicRouterInfo)."""
    template = {"other": {"0": "127.0.0.1:2"}}
    servers = ScriptedNameServers(T={"own": {"0": "127.0.0.1:1"}}, TBW102=template)
    routes = RouteTable(servers)  # type: ignore[arg-type]
    assert {queue.broker_name for queue in (await routes.publish_info("T")).queues} == {"own"}
    servers.brokers["T"] = {"own": {"1": "127.0.0.1:3"}}  # only a slave
    await routes.refresh("T")
    del servers.brokers["T"]
    with pytest.raises(NoRoute):
        await routes.publish_info("T")
    servers.brokers["T"] = {"own": {"0": "127.0.0.1:3"}}
    assert {queue.broker_name for queue in (await routes.publish_info("T")).queues} == {"own"}
    assert {queue.broker_name for queue in (await routes.publish_info("New")).queues} == {"other"}
