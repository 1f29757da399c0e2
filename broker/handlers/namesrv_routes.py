"""Routes, cluster info and topic lists of the name server. Changes nothing. Loop thread.

GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO 106, GET_BROKER_MEMBER_GROUP 901; topic lists 206, 224,
304, 311, 312, 313.
"""

import json
from collections.abc import Iterable
from typing import Any

from firearrow._native.protocol import fastjson, name_rules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer, Routes, with_host
from firearrow.broker.tables.kv import ORDER_TOPIC_CONFIG, KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import BrokerData, RouteTable, TopicFlag

READ_WRITE = name_rules.PERM_READ | name_rules.PERM_WRITE
STANDARD_JSON_VERSION = 401
"""V4_9_4: from this version on clients get integer keys in quotes."""


class NamingHandler:
    def __init__(self, routes: RouteTable, kv: KvTable, options: NamingOptions, clock: Clock) -> None:
        self._routes = routes
        self._kv = kv
        self._options = options
        self._clock = clock
        self._started_ms = clock.monotonic_ms()

    def routes(self) -> Routes:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_subscription_only_topics,
        }

    def get_route(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        if self._options.flag("needWaitForService") and self._is_young():
            raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(topic, acting=self._options.flag("supportActingMaster"))
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        body: dict[str, Any] = {
            "brokerDatas": [_broker(broker, peer) for broker in route.brokers],
            "filterServerTable": {
                with_host(key, peer): list(value) for key, value in route.filter_servers.items()
            },
            "queueDatas": [
                {
                    "brokerName": name,
                    "perm": data.perm,
                    "readQueueNums": data.read_queues,
                    "topicSysFlag": data.topic_flag,
                    "writeQueueNums": data.write_queues,
                }
                for name, data in route.queues.items()
            ],
        }
        order = self._kv.get(ORDER_TOPIC_CONFIG, topic) if self._options.flag("orderMessageEnable") else None
        if order is not None:
            body["orderTopicConf"] = order
        return self._answer(request, body)

    def _answer(self, request: RemotingCommand, body: dict[str, Any]) -> RemotingCommand:
        if request.version >= STANDARD_JSON_VERSION or request.boolean_or("acceptStandardJsonOnly", False):
            return request.answer(body=_standard_json(body))
        return request.answer(body=fastjson.dumps(body))

    def route_to_broker(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        """For who may not have the topic's route: one queue of the broker in this process, by the address that the
        peer has reached already, whether there is such a topic or not. The broker refuses what it is asked and
        states why; of a refused route, Apache's clients show only that there is none. None: no broker is here."""
        own = self._routes.own_broker()
        if own is None:
            return None
        queue = {"perm": READ_WRITE, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}
        body = {
            "brokerDatas": [_broker(own, peer)],
            "filterServerTable": {},
            "queueDatas": [{"brokerName": own.name} | queue],
        }
        return self._answer(request, body)

    def get_cluster_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        brokers = {name: _broker(broker, peer) for name, broker in self._routes.brokers.items()}
        body = {"brokerAddrTable": brokers, "clusterAddrTable": self._routes.clusters()}
        return request.answer(body=fastjson.dumps(body))

    def get_member_group(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        cluster, name = request.text("clusterName"), request.text("brokerName")
        broker = self._routes.brokers.get(name)
        addresses = {} if broker is None else _addresses(broker, peer)
        group = {"brokerAddrs": addresses, "brokerName": name, "cluster": cluster}
        return request.answer(body=fastjson.dumps({"brokerMemberGroup": group}))

    def get_all_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return self._topic_list(request, "enableAllTopicList", self._routes.topics)

    def get_topics_by_cluster(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        names = set(self._routes.clusters().get(request.text("cluster"), ()))
        topics = [topic for topic, queues in self._routes.topics.items() if not names.isdisjoint(queues)]
        return self._topic_list(request, "enableTopicList", topics)

    def get_system_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Names of clusters and brokers, which each have a topic, and the address of any broker."""
        clusters = self._routes.clusters()
        names = dict.fromkeys(name for cluster, brokers in clusters.items() for name in (cluster, *brokers))
        body: dict[str, Any] = {"topicList": list(names)}
        for broker in self._routes.brokers.values():
            body["brokerAddr"] = next(iter(_addresses(broker, peer).values()))
            break
        return request.answer(body=fastjson.dumps(body))

    def get_unit_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return self._topic_list(request, "enableTopicList", self._routes.flagged_topics(TopicFlag.UNIT))

    def get_unit_subscription_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topics = self._routes.flagged_topics(TopicFlag.UNIT_SUBSCRIPTION)
        return self._topic_list(request, "enableTopicList", topics)

    def get_unit_subscription_only_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topics = self._routes.flagged_topics(TopicFlag.UNIT_SUBSCRIPTION, without=TopicFlag.UNIT)
        return self._topic_list(request, "enableTopicList", topics)

    def _topic_list(self, request: RemotingCommand, option: str, topics: Iterable[str]) -> RemotingCommand:
        if not self._options.flag(option):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
        return request.answer(body=fastjson.dumps({"topicList": list(topics)}))

    def _is_young(self) -> bool:
        wait_ms = self._options.number("waitSecondsForService") * 1000
        return self._clock.monotonic_ms() - self._started_ms < wait_ms


def _broker(broker: BrokerData, peer: Peer) -> dict[str, Any]:
    members: dict[str, Any] = {
        "brokerAddrs": _addresses(broker, peer),
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.acting_master,
    }
    if broker.zone is not None:
        members["zoneName"] = broker.zone
    return members


def _addresses(broker: BrokerData, peer: Peer) -> dict[int, str]:
    return {broker_id: with_host(address, peer) for broker_id, address in sorted(broker.addresses.items())}


def _standard_json(body: dict[str, Any]) -> bytes:
    """JSON with sorted and quoted keys, without blanks, everything beyond ASCII escaped."""
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode("ascii")
