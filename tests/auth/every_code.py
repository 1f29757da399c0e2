"""A request for each code that a broker with its name server serves, complete, with the rights that it needs."""

import json
from typing import NamedTuple

from firearrow._native.wire.codes import RequestCode as Code

TOPIC, GROUP, OTHER = "T", "G", "G2"
CLUSTER_UPDATE, CLUSTER_GET = ("Cluster:DefaultCluster", "Update"), ("Cluster:DefaultCluster", "Get")
BOTH_SUB = (("Topic:T", "Sub"), ("Group:G", "Sub"))
BOTH_GET = (("Topic:T", "Get"), ("Group:G", "Get"))
CONSUMER = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
ADMIN = {"group": GROUP, "topic": TOPIC}
QUEUE = {"topic": TOPIC, "queueId": "0"}
USER, ACL = {"username": "u"}, {"subject": "User:u"}
Right = tuple[str, str]


class Case(NamedTuple):
    """`needs`: the first right that a refusal names comes first. `{offset}` and `{id}`: of a message of TOPIC,
    `{half}` and `{half_id}`: of a half message of it."""

    ext: dict[str, str]
    needs: tuple[Right, ...]
    body: object = None


def _sent(topic: str = TOPIC) -> dict[str, str]:
    letters = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    return letters | {"j": "0", "k": "false", "m": "false"}


def _sent_long(topic: str = TOPIC) -> dict[str, str]:
    names = {"producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
    return names | {"queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}


def _pull() -> dict[str, str]:
    return CONSUMER | {"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "subscription": "*"}


def _pop() -> dict[str, str]:
    pop = {"maxMsgNums": "1", "invisibleTime": "1000", "pollTime": "0", "bornTime": "1", "initMode": "0"}
    return CONSUMER | pop


def _handle() -> dict[str, str]:
    return CONSUMER | {"extraInfo": "0 0 1000 0 0 b 0 0", "offset": "0", "invisibleTime": "1000"}


def _cluster(right: Right, *codes: Code) -> dict[int, list[Case]]:
    return {code: [Case({}, (right,))] for code in codes}


_SUBSCRIBED = {"topic": TOPIC, "subString": "*", "subVersion": 0}
_HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {"groupName": GROUP, "subscriptionDataSet": [_SUBSCRIBED]},
        {"groupName": OTHER, "subscriptionDataSet": [{"topic": "T2", "subString": "*", "subVersion": 0}]},
    ],
}
_LOCKS = {
    "consumerGroup": GROUP,
    "clientId": "c",
    "mqSet": [{"topic": topic, "brokerName": "b", "queueId": 0} for topic in (TOPIC, "T2")],
}
_ACK = {"c": GROUP, "t": TOPIC, "r": "0", "q": 0, "so": 0, "pt": 1, "it": 1, "rq": 0, "b": "AQ=="}
_TOPIC_UPDATE, _GROUP_UPDATE = ("Topic:T", "Update"), ("Group:G", "Update")
POPPED = (TOPIC, "%RETRY%G_T", "%RETRY%G+T")
"""Where a message of the topic T that G popped may be."""
RECALL = "djEgVCBiIDEgaw=="  # v1 T b 1 k

CASES: dict[int, list[Case]] = {
    Code.SEND_MESSAGE: [
        Case(_sent_long(), (("Topic:T", "Pub"),), "x"),
        Case(_sent_long("%RETRY%G"), (("Group:G", "Sub"),), "x"),
    ],
    Code.SEND_MESSAGE_V2: [
        Case(_sent(), (("Topic:T", "Pub"),), "x"),
        Case(_sent("%RETRY%G"), (("Group:G", "Sub"),), "x"),
    ],
    Code.SEND_BATCH_MESSAGE: [Case(_sent() | {"m": "true"}, (("Topic:T", "Pub"),), "x")],
    Code.SEND_REPLY_MESSAGE: [Case(_sent_long(), (("Topic:T", "Pub"),), "x")],
    Code.SEND_REPLY_MESSAGE_V2: [Case(_sent(), (("Topic:T", "Pub"),), "x")],
    Code.PULL_MESSAGE: [
        Case(_pull(), BOTH_SUB),
        Case(_pull() | {"topic": "%RETRY%G2"}, (("Group:G2", "Sub"), ("Group:G", "Sub"))),
    ],
    Code.LITE_PULL_MESSAGE: [Case(_pull(), BOTH_SUB)],
    Code.CONSUMER_SEND_MSG_BACK: [
        Case(
            {"group": GROUP, "offset": "{offset}", "delayLevel": "1"},
            (("Group:G", "Sub"), ("Topic:T", "Sub")),
        ),
        Case(
            {"group": GROUP, "offset": "{offset}", "delayLevel": "1"}
            | {"originTopic": "T2", "originQueueId": "0", "originQueueOffset": "0"},
            (("Group:G", "Sub"), ("Topic:T2", "Sub")),
        ),
    ],
    Code.END_TRANSACTION: [
        Case(
            {
                "producerGroup": "P",
                "tranStateTableOffset": "0",
                "commitLogOffset": "{half}",
                "commitOrRollback": "0",
                "msgId": "{id}",
            },
            (("Topic:T", "Pub"),),
        )
    ],
    Code.RESUME_CHECK_HALF_MESSAGE: [Case({"msgId": "{half_id}"}, (_TOPIC_UPDATE,))],
    Code.RECALL_MESSAGE: [
        Case(
            {"producerGroup": "P", "topic": "T2", "recallHandle": RECALL},
            (("Topic:T", "Pub"), ("Topic:T2", "Pub")),
        )
    ],
    Code.VIEW_MESSAGE_BY_ID: [Case({"offset": "{offset}"}, (("Topic:T", "Get"),))],
    Code.QUERY_MESSAGE: [
        Case(
            {"topic": TOPIC, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"},
            (("Topic:T", "Get"),),
        )
    ],
    Code.QUERY_CONSUME_QUEUE: [Case(CONSUMER | {"index": "0", "count": "1"}, BOTH_GET)],
    Code.HEART_BEAT: [
        Case(
            {}, (("Group:G", "Sub"), ("Topic:T", "Sub"), ("Group:G2", "Sub"), ("Topic:T2", "Sub")), _HEARTBEAT
        )
    ],
    Code.UNREGISTER_CLIENT: [Case({"clientID": "c", "consumerGroup": GROUP}, (("Group:G", "Sub"),))],
    Code.GET_CONSUMER_LIST_BY_GROUP: [Case({"consumerGroup": GROUP}, (("Group:G", "Get"),))],
    Code.CHECK_CLIENT_CONFIG: [
        Case({}, (("Group:G", "Sub"), ("Topic:T", "Sub")), {"group": GROUP, "subscriptionData": _SUBSCRIBED})
    ],
    Code.LOCK_BATCH_MQ: [Case({}, (("Group:G", "Sub"), ("Topic:T", "Sub"), ("Topic:T2", "Sub")), _LOCKS)],
    Code.UNLOCK_BATCH_MQ: [Case({}, (("Group:G", "Sub"), ("Topic:T", "Sub"), ("Topic:T2", "Sub")), _LOCKS)],
    Code.QUERY_ASSIGNMENT: [Case({}, BOTH_SUB, {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c"})],
    Code.SET_MESSAGE_REQUEST_MODE: [
        Case({}, (_TOPIC_UPDATE, _GROUP_UPDATE), {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL"})
    ],
    Code.POP_MESSAGE: [Case(_pop(), BOTH_SUB)],
    Code.PEEK_MESSAGE: [Case(_pop(), BOTH_SUB)],
    Code.ACK_MESSAGE: [Case(_handle() | {"topic": topic}, BOTH_SUB) for topic in POPPED],
    Code.BATCH_ACK_MESSAGE: [
        Case(
            {},
            (("Topic:T", "Sub"), ("Group:G", "Sub"), ("Topic:T2", "Sub"), ("Group:G2", "Sub")),
            {"brokerName": "b", "acks": [_ACK, _ACK | {"c": OTHER, "t": "T2"}]},
        )
    ],
    Code.CHANGE_MESSAGE_INVISIBLETIME: [Case(_handle() | {"topic": topic}, BOTH_SUB) for topic in POPPED],
    Code.NOTIFICATION: [Case(_pop(), BOTH_SUB)],
    Code.POP_LITE_MESSAGE: [
        Case(
            CONSUMER | {"clientId": "c", "maxMsgNum": "1", "invisibleTime": "1000", "pollTime": "0"}, BOTH_SUB
        )
    ],
    Code.LITE_SUBSCRIPTION_CTL: [
        Case(
            {},
            (("Group:G", "Sub"), ("Topic:T", "Sub"), ("Group:G2", "Sub"), ("Topic:T2", "Sub")),
            {
                "subscriptionSet": [
                    {"action": "COMPLETE_REMOVE", "clientId": "c", "group": group, "topic": topic}
                    for group, topic in ((GROUP, TOPIC), (OTHER, "T2"))
                ]
            },
        )
    ],
    Code.GET_BROKER_LITE_INFO: [Case({}, (CLUSTER_GET,))],
    Code.GET_PARENT_TOPIC_INFO: [Case({"topic": TOPIC}, (("Topic:T", "Get"),))],
    Code.GET_LITE_TOPIC_INFO: [Case({"parentTopic": TOPIC, "liteTopic": "l"}, (("Topic:T", "Get"),))],
    Code.GET_LITE_CLIENT_INFO: [Case({"parentTopic": TOPIC, "group": GROUP, "clientId": "c"}, BOTH_GET)],
    Code.GET_LITE_GROUP_INFO: [Case({"group": GROUP, "topK": "1"}, (("Group:G", "Get"),))],
    Code.TRIGGER_LITE_DISPATCH: [Case({"group": GROUP}, (_GROUP_UPDATE,))],
    Code.POLLING_INFO: [Case(CONSUMER, BOTH_GET)],
    Code.QUERY_CONSUMER_OFFSET: [Case(CONSUMER, BOTH_GET)],
    Code.UPDATE_CONSUMER_OFFSET: [Case(CONSUMER | {"commitOffset": "0"}, (_TOPIC_UPDATE, _GROUP_UPDATE))],
    Code.SEARCH_OFFSET_BY_TIMESTAMP: [Case(QUEUE | {"timestamp": "0"}, (("Topic:T", "Get"),))],
    Code.GET_MAX_OFFSET: [Case(QUEUE, (("Topic:T", "Get"),))],
    Code.GET_MIN_OFFSET: [Case(QUEUE, (("Topic:T", "Get"),))],
    Code.GET_EARLIEST_MSG_STORETIME: [Case(QUEUE, (("Topic:T", "Get"),))],
    Code.INVOKE_BROKER_TO_RESET_OFFSET: [
        Case(ADMIN | {"timestamp": "0", "isForce": "true"}, (_TOPIC_UPDATE, _GROUP_UPDATE))
    ],
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: [Case(ADMIN, BOTH_GET)],
    Code.QUERY_CORRECTION_OFFSET: [
        Case(
            {"topic": TOPIC, "compareGroup": GROUP, "filterGroups": OTHER},
            (("Topic:T", "Get"), ("Group:G", "Get"), ("Group:G2", "Get")),
        )
    ],
    Code.CLONE_GROUP_OFFSET: [
        Case(
            {"srcGroup": GROUP, "destGroup": OTHER, "topic": TOPIC},
            (_GROUP_UPDATE, ("Group:G2", "Update"), _TOPIC_UPDATE),
        )
    ],
    Code.UPDATE_AND_CREATE_TOPIC: [
        Case(
            {
                "topic": TOPIC,
                "topicFilterType": "SINGLE_TAG",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
            },
            (("Topic:T", "Create"),),
        )
    ],
    Code.UPDATE_AND_CREATE_TOPIC_LIST: [
        Case(
            {},
            (("Topic:T", "Create"), ("Topic:T2", "Create")),
            {"topicConfigList": [{"topicName": TOPIC}, {"topicName": "T2"}]},
        )
    ],
    Code.DELETE_TOPIC_IN_BROKER: [Case({"topic": "gone"}, (("Topic:gone", "Delete"),))],
    Code.GET_TOPIC_STATS_INFO: [Case({"topic": TOPIC}, (("Topic:T", "Get"),))],
    Code.GET_TOPIC_CONFIG: [Case({"topic": TOPIC}, (("Topic:T", "Get"),))],
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: [Case({}, (("Group:G", "Create"),), {"groupName": GROUP})],
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: [
        Case(
            {},
            (("Group:G", "Create"), ("Group:G2", "Create")),
            {"groupConfigList": [{"groupName": GROUP}, {"groupName": OTHER}]},
        )
    ],
    Code.DELETE_SUBSCRIPTIONGROUP: [Case({"groupName": "gone"}, (("Group:gone", "Delete"),))],
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: [Case({"group": GROUP}, (("Group:G", "Get"),))],
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: [Case(ADMIN, (_TOPIC_UPDATE, _GROUP_UPDATE))],
    Code.GET_CONSUMER_CONNECTION_LIST: [Case({"consumerGroup": GROUP}, (("Group:G", "Get"),))],
    Code.GET_CONSUME_STATS: [
        Case({"consumerGroup": GROUP}, (("Group:G", "Get"),)),
        Case({"consumerGroup": GROUP, "topic": TOPIC}, (("Group:G", "Get"), ("Topic:T", "Get"))),
    ],
    Code.QUERY_TOPIC_CONSUME_BY_WHO: [Case({"topic": TOPIC}, (("Topic:T", "Get"),))],
    Code.QUERY_CONSUME_TIME_SPAN: [Case(ADMIN, BOTH_GET)],
    Code.GET_CONSUMER_RUNNING_INFO: [Case({"consumerGroup": GROUP, "clientId": "c"}, (("Group:G", "Get"),))],
    Code.CONSUME_MESSAGE_DIRECTLY: [
        Case(
            {"consumerGroup": GROUP, "clientId": "c", "msgId": "{id}", "brokerName": "b"},
            (("Group:G", "Sub"), ("Topic:T", "Sub")),
        )
    ],
    Code.QUERY_TOPICS_BY_CONSUMER: [Case({"group": GROUP}, (("Group:G", "Get"),))],
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: [Case(ADMIN, BOTH_GET)],
    Code.GET_ROUTEINFO_BY_TOPIC: [
        Case({"topic": TOPIC}, (("Topic:T", "Get"),)),
        Case({"topic": "%RETRY%G"}, (("Group:G", "Get"),)),
    ],
    Code.AUTH_GET_USER: [Case(USER, (CLUSTER_GET,))],
    Code.AUTH_CREATE_USER: [Case({"username": "u2"}, (CLUSTER_UPDATE,), {"password": "p"})],
    Code.AUTH_UPDATE_USER: [Case(USER, (CLUSTER_UPDATE,), {"password": "p"})],
    Code.AUTH_DELETE_USER: [Case({"username": "gone"}, (CLUSTER_UPDATE,))],
    Code.AUTH_CREATE_ACL: [Case(ACL, (CLUSTER_UPDATE,), {})],
    Code.AUTH_UPDATE_ACL: [Case(ACL, (CLUSTER_UPDATE,), {})],
    Code.AUTH_DELETE_ACL: [Case({"subject": "User:gone"}, (CLUSTER_UPDATE,))],
    Code.AUTH_GET_ACL: [Case(ACL, (CLUSTER_GET,))],
    Code.TRIM_TOPIC: [Case({"topic": TOPIC, "offset": "0"}, (("Topic:T", "Delete"),))],
    Code.LIST_PENDING_TIMERS: [
        Case({"topic": TOPIC}, BOTH_GET[:1]),
        Case({}, (CLUSTER_GET,)),
        Case({"group": GROUP}, (CLUSTER_GET,)),
    ],
    Code.LIST_QUEUE_LOCKS: [
        Case({"group": GROUP}, BOTH_GET[1:]),
        Case({}, (CLUSTER_GET,)),
        Case({"topic": TOPIC}, (CLUSTER_GET,)),
    ],
    Code.LIST_POP_IN_FLIGHT: [Case(ADMIN, BOTH_GET), Case({"group": GROUP}, BOTH_GET[1:])],
    Code.GET_LAG: [
        Case(ADMIN, BOTH_GET),
        Case({"topic": TOPIC}, BOTH_GET[:1]),
        Case({"group": GROUP}, BOTH_GET[1:]),
        Case({}, (CLUSTER_GET,)),
    ],
    **_cluster(
        CLUSTER_GET,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_ALL_PRODUCER_INFO,
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.LIST_HALF_MESSAGES,
        Code.LIST_REFUSALS,
        Code.GET_STATUS,
        Code.GET_HISTORY,
        Code.GET_LOG,
        Code.LIST_CONNECTIONS,
        Code.GET_MACHINE,
        Code.GET_QUOTAS,
        Code.LIST_TOPICS,
        Code.LIST_GROUPS,
        Code.LIST_BROKER_FAULTS,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.AUTH_LIST_USER,
        Code.AUTH_LIST_ACL,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.GET_NAMESRV_CONFIG,
    ),
    **_cluster(
        CLUSTER_UPDATE,
        Code.CLOSE_CONNECTION,
        Code.UPDATE_QUOTA,
        Code.PROMOTE_BROKER,
        Code.FENCE_BROKER,
        Code.REBUILD_REPLICA,
        Code.FORGET_REPLICA,
        Code.POP_ROLLBACK,
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.SET_COMMITLOG_READ_MODE,
        Code.SWITCH_TIMER_ENGINE,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.QUERY_DATA_VERSION,
        Code.BROKER_HEARTBEAT,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.UPDATE_NAMESRV_CONFIG,
    ),
}


def encoded(body: object) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
