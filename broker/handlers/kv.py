"""The name server's small store: PUT_KV_CONFIG 100, GET_KV_CONFIG 101, DELETE_KV_CONFIG 102,
GET_KVLIST_BY_NAMESPACE 219. Loop thread.
"""

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import fastjson
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.kv import KvTable


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
