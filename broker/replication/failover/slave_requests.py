"""What a slave answers otherwise than a master: which requests it refuses, and what it reports of itself.

Codes and remarks are those of Apache 5.5.0, but topics and groups are refused as by 4.9 (5.5.0 takes them and
undoes them later), and pops are refused (Apache gives messages out and cannot store their check point). Loop
thread.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Handler, Peer, Routes
from firearrow.broker.replication.failover.acting_master import ActingMaster
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.replication.session.slave_status import SlaveStatus

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
NOT_HERE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
REFUSALS: Mapping[int, tuple[int, str]] = {
    **dict.fromkeys(SENDS, (ResponseCode.SYSTEM_BUSY, REJECTED)),
    **dict.fromkeys(
        (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. Replies are put to the master."),
    ),
    RequestCode.END_TRANSACTION: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "Message store is slave mode, so end transaction is forbidden.",
    ),
    RequestCode.RECALL_MESSAGE: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "recall failed, broker service not available",
    ),
    **dict.fromkeys(
        (
            RequestCode.POP_MESSAGE,
            RequestCode.POP_LITE_MESSAGE,
            RequestCode.LITE_SUBSCRIPTION_CTL,
            RequestCode.TRIGGER_LITE_DISPATCH,
            RequestCode.NOTIFICATION,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        ),
        (
            ResponseCode.SLAVE_NOT_AVAILABLE,
            "a slave cannot store what pops need: pop and acknowledge at the master",
        ),
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.TRIM_TOPIC,
        ),
        (ResponseCode.SYSTEM_ERROR, NOT_HERE),
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (
        ResponseCode.SYSTEM_ERROR,
        "Can not reset offset in slave broker",
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "half messages are checked by the master",
    ),
}
NO_SENDS = "service not available now. This broker is a slave, and messages are put to the master."
"""With enableSlaveActingMaster, for clients see the slave as a master and try others on this code."""
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class SlaveRequests:
    """`acting` None: without enableSlaveActingMaster. `end()`: of our log. `lag()`: of it against the master's.
    `fenced`: why this was a master until now; empty: it is a slave."""

    def __init__(
        self,
        config: Config,
        status: SlaveStatus,
        acting: ActingMaster | None,
        end: Callable[[], int],
        lag: Callable[[], ReplicaLag],
        fenced: str = "",
    ) -> None:
        self._config = config
        self._status = status
        self._acting = acting
        self._end = end
        self._lag = lag
        self._fenced = fenced

    def routes(self, master_routes: Iterable[Routes]) -> list[Routes]:
        """Those of a master, with what a slave answers in their place."""
        own: dict[int, Handler] = {
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self._reset_flush_offset,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange_ha_info,
        }
        if self._acting is not None:
            own[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE] = self._acting.notified
        routes: list[Routes] = [own]
        for table in master_routes:
            routes.append({code: self._own_way(code, to) for code, to in table.items() if code not in own})
        return routes

    def _own_way(self, code: int, handler: Handler) -> Handler:
        if code in REFUSALS:
            return self._refuse
        if code == RequestCode.UPDATE_CONSUMER_OFFSET and self._acting is not None:
            return partial(_commit, handler, self._acting)
        if code not in PULLS:
            return handler

        def pull(request: RemotingCommand, peer: Peer) -> Answer:
            acts = self._acting is not None and self._acting.serves_reads
            if not acts and not self._config.options.slave_read and not self._fenced:
                raise Refusal(ResponseCode.SYSTEM_BUSY, REJECTED)
            return handler(request, peer)

        return pull

    def _refuse(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if self._fenced:  # a code with which clients of all versions try another broker
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {self._fenced}")
        if self._acting is not None and request.code in SENDS:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NO_SENDS)
        raise Refusal(*REFUSALS[request.code])

    def _ha_status(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Apache's members, and ours: how far behind we are, our end of the connection, `state` and `reason`."""
        status, lag = self._status, self._lag()
        client = {
            "lagBytes": lag.bytes,
            "lagMs": lag.ms,
            "lastReadTimestamp": status.last_read_ms,
            "lastWriteTimestamp": status.last_write_ms,
            "localAddr": "" if status.local is None else "{}:{}".format(*status.local),
            "masterAddr": status.ha_address,
            "masterFlushOffset": status.master_flushed,
            "maxOffset": self._end(),
            "reason": status.reason,
            "state": status.state,
            "transferredByteInSecond": status.bytes_per_second,
        }
        body = {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": False,
            "masterCommitLogMaxOffset": 0,
        }
        return request.answer(body=orjson.dumps(body))

    def _reset_flush_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._status.master_flushed = request.integer_or("masterFlushOffset", self._status.master_flushed)
        return request.answer()

    def _exchange_ha_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Without enableSlaveActingMaster, no request turns a slave to another master."""
        if request.text_or("masterHaAddress", ""):
            if self._acting is not None:
                return self._acting.offered(request, peer)
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                "this slave takes its master's address from the name server or from haMasterAddress only",
            )
        return request.answer()


def _commit(handler: Handler, acting: ActingMaster, request: RemotingCommand, peer: Peer) -> Answer:
    answer = handler(request, peer)
    acting.committed(request)
    return answer
