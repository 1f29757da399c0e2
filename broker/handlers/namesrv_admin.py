"""Administration of the name server: topics, write permissions, config, key-value config. Loop thread.

- `NamingAdminHandler`: REGISTER_TOPIC_IN_NAMESRV 217, DELETE_TOPIC_IN_NAMESRV 216, WIPE_WRITE_PERM_OF_BROKER
  205, ADD_WRITE_PERM_OF_BROKER 327, UPDATE_NAMESRV_CONFIG 318, GET_NAMESRV_CONFIG 319.
- `KvHandler`: PUT_KV_CONFIG 100, GET_KV_CONFIG 101, DELETE_KV_CONFIG 102, GET_KVLIST_BY_NAMESPACE 219.
"""

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.broker.base import properties
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.json_fields import items, members
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.registration import QueueData, name, queue_data
from firearrow.broker.tables.routes import BROKERS_MAX, RouteTable


class NamingAdminHandler:
    def __init__(self, routes: RouteTable, options: NamingOptions) -> None:
        self._routes = routes
        self._options = options

    def routes(self) -> Routes:
        return {
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    def register_topic(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            topic = name(request.text("topic"), "topic")
            queues = _queues(request.body)
        except ValueError as error:
            raise FieldError(str(error)) from None
        self._routes.put_topic(topic, queues)
        return request.answer()

    def delete_topic(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._routes.delete_topic(request.text("topic"), request.text_or("clusterName", "") or None)
        return request.answer()

    def wipe_write_perm(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        count = self._routes.wipe_write(request.text("brokerName"))
        return request.answer(ext={"wipeTopicCount": str(count)})

    def add_write_perm(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        count = self._routes.add_write(request.text("brokerName"))
        return request.answer(ext={"addTopicCount": str(count)})

    def update_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            pairs = properties.parse(request.body)
        except ValueError as error:
            raise FieldError(f"the body is not in properties format: {error}") from None
        self._options.update(pairs)
        return request.answer()

    def get_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=self._options.text().encode())


def _queues(body: bytes) -> dict[str, QueueData]:
    """The `queueDatas` of a TopicRouteData by broker name; {} without a body."""
    if not body:
        return {}
    datas = items(members(fastjson.loads_body(body), "the body").get("queueDatas"), "queueDatas")
    if len(datas) > BROKERS_MAX:
        raise ValueError(f"queueDatas has {len(datas)} members, at most {BROKERS_MAX} are allowed")
    queues = {}
    for data in datas:
        config = members(data, "a member of queueDatas")
        queues[name(config.get("brokerName"), "brokerName")] = queue_data(config)
    return queues


class KvHandler:
    def __init__(self, kv: KvTable) -> None:
        self._kv = kv

    def routes(self) -> Routes:
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
        }

    def put_kv_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._kv.put(request.text("namespace"), request.text("key"), request.text("value"))
        return request.answer()

    def get_kv_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        namespace, key = request.text("namespace"), request.text("key")
        value = self._kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(ext={"value": value})

    def delete_kv_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._kv.delete(request.text("namespace"), request.text("key"))
        return request.answer()

    def get_kv_list(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        namespace = request.text("namespace")
        values = self._kv.namespace(namespace)
        if values is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.answer(body=fastjson.dumps({"table": values}))
