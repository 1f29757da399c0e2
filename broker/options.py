"""Options of the broker: each declared once with Apache's key, its default and its range.

A frozen value; reads no file.
"""

import dataclasses
import socket
from pathlib import Path
from typing import Any, Literal

Change = Literal["running", "start"]
TIMER_STEPS_MS = (100, 200, 500, 1000)


def _option(default: Any, key: str, change: Change = "start", low: int = 0, high: int = 1 << 62) -> Any:  # noqa: ANN401
    return dataclasses.field(
        default=default, metadata={"key": key, "change": change, "low": low, "high": high}
    )


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Units stand last in a name; keys and defaults are Apache's, but for the few marked `ours`."""

    # identity and network
    cluster_name: str = _option("DefaultCluster", "brokerClusterName")
    broker_name: str = _option(_host_name(), "brokerName")
    broker_id: int = _option(0, "brokerId", high=0)
    broker_ip: str = _option("", "brokerIP1")
    name_servers: str = _option("", "namesrvAddr")
    bind_address: str = _option("127.0.0.1", "bindAddress")
    listen_port: int = _option(10911, "listenPort", high=65535)
    idle_s: int = _option(120, "serverChannelMaxIdleTimeSeconds", low=1)
    broker_permission: int = _option(6, "brokerPermission", "running", high=7)
    region_id: str = _option("DefaultRegion", "regionId")
    trace_on: bool = _option(True, "traceOn", "running")
    register_period_ms: int = _option(30_000, "registerNameServerPeriod")
    # the store
    store_root: str = _option(str(Path.home() / "firearrow" / "store"), "storePathRootDir")
    commitlog_path: str = _option("", "storePathCommitLog")
    segment_bytes: int = _option(1 << 30, "mappedFileSizeCommitLog", low=1 << 16)
    queue_file_bytes: int = _option(6_000_000, "mappedFileSizeConsumeQueue", low=20)
    index_enabled: bool = _option(True, "messageIndexEnable")
    index_slots: int = _option(5_000_000, "maxHashSlotNum", low=1, high=(1 << 31) - 1)
    index_entries: int = _option(20_000_000, "maxIndexNum", low=2, high=(1 << 31) - 1)
    check_crc: bool = _option(True, "checkCRCOnRecover")
    flush_disk_type: str = _option("ASYNC_FLUSH", "flushDiskType")
    flush_interval_ms: int = _option(500, "flushIntervalCommitLog", "running", low=1)
    queue_flush_interval_ms: int = _option(1000, "flushIntervalConsumeQueue", "running", low=1)
    sync_flush_timeout_ms: int = _option(5000, "syncFlushTimeout", "running", low=1)
    max_message_bytes: int = _option(
        4 << 20, "maxMessageSize", "running", low=10, high=(16 << 20) - (1 << 17)
    )
    bytes_in_memory: int = _option(262_144, "maxTransferBytesOnMessageInMemory", "running", high=8 << 20)
    count_in_memory: int = _option(32, "maxTransferCountOnMessageInMemory", "running", low=1, high=1024)
    bytes_on_disk: int = _option(65_536, "maxTransferBytesOnMessageInDisk", "running", high=8 << 20)
    count_on_disk: int = _option(8, "maxTransferCountOnMessageInDisk", "running", low=1, high=1024)
    in_memory_percent: int = _option(40, "accessMessageInMemoryMaxRatio", "running", high=100)
    filter_bytes: int = _option(16_000, "maxFilterMessageSize", "running", low=20, high=1 << 20)
    query_count: int = _option(64, "maxMsgsNumBatch", "running", low=1, high=1024)
    unique_query_count: int = _option(32, "defaultQueryMaxNum", "running", low=1, high=1024)
    delay_levels: str = _option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "messageDelayLevel"
    )
    lmq: bool = _option(False, "enableLmq")
    multi: bool = _option(False, "enableMultiDispatch")
    lights_max: int = _option(20_000, "maxLmqConsumeQueueNum", high=1 << 24)
    store_replies: bool = _option(True, "storeReplyMessageEnable", "running")
    reply_bytes_max: int = _option(64 << 20, "maxReplyBytesWaiting", "running", low=1 << 16)  # ours
    # retention
    reserved_hours: int = _option(72, "fileReservedTime", "running", high=1 << 24)
    delete_when: str = _option("04", "deleteWhen", "running")
    clean_interval_ms: int = _option(10_000, "cleanResourceInterval", "running", low=10)
    delete_files_max: int = _option(10, "deleteFileBatchMax", "running", low=1)
    delete_interval_ms: int = _option(100, "deleteCommitLogFilesInterval", "running")
    queue_delete_interval_ms: int = _option(100, "deleteConsumeQueueFilesInterval", "running")
    redelete_interval_ms: int = _option(120_000, "redeleteHangedFileInterval", "running")
    disk_reclaim_percent: int = _option(75, "diskMaxUsedSpaceRatio", "running")
    disk_force_percent: int = _option(85, "diskSpaceCleanForciblyRatio", "running")
    disk_full_percent: int = _option(90, "diskSpaceWarningLevelRatio", "running")
    clean_forcibly: bool = _option(True, "cleanFileForciblyEnable", "running")
    # timer messages
    timer_precision_ms: int = _option(1000, "timerPrecisionMs")
    timer_max_delay_s: int = _option(259_200, "timerMaxDelaySec", "running", low=1, high=1 << 31)
    timer_roll_slots: int = _option(172_800, "timerRollWindowSlot")
    timer_log_file_bytes: int = _option(104_857_600, "mappedFileSizeTimerLog", low=120, high=1 << 30)
    timer_slot_messages: int = _option((1 << 31) - 1, "timerCongestNumEachSlot", "running", low=1)
    recall: bool = _option(False, "recallMessageEnable", "running")
    recall_unwritable: bool = _option(True, "allowRecallWhenBrokerNotWriteable", "running")
    recall_key_with_topic: bool = _option(False, "appendTopicForTimerDeleteKey")
    # transactions
    reject_transactions: bool = _option(False, "rejectTransactionMessage", "running")
    transaction_timeout_ms: int = _option(6000, "transactionTimeOut", "running")
    transaction_check_max: int = _option(15, "transactionCheckMax", "running", low=1)
    transaction_check_interval_ms: int = _option(30_000, "transactionCheckInterval", "running", low=10)
    transaction_op_bytes: int = _option(4096, "transactionOpMsgMaxSize", "running", low=1, high=1 << 16)
    halves_max: int = _option(1 << 24, "maxHalfMessagesWaiting", "running", low=1)  # ours
    # topics and groups
    auto_create_topics: bool = _option(True, "autoCreateTopicEnable")
    default_queues: int = _option(8, "defaultTopicQueueNums", low=1, high=4096)
    cluster_topic: bool = _option(True, "clusterTopicEnable")
    broker_topic: bool = _option(True, "brokerTopicEnable")
    trace_topic: bool = _option(False, "traceTopicEnable")
    trace_topic_name: str = _option("RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName")
    auto_create_groups: bool = _option(True, "autoCreateSubscriptionGroup")
    check_system_topics: bool = _option(True, "validateSystemTopicWhenUpdateTopic", "running")
    mixed_message_type: bool = _option(False, "enableMixedMessageType", "running")
    pop_retry_probability: int = _option(20, "popFromRetryProbability", "running", high=100)
    pop_retry_probability_priority: int = _option(
        0, "popFromRetryProbabilityForPriority", "running", high=100
    )
    priority_ascending: bool = _option(True, "priorityOrderAsc", "running")
    pop_retry_v2: bool = _option(False, "enableRetryTopicV2", "running")
    pop_retry_v1_too: bool = _option(True, "retrieveMessageFromPopRetryTopicV1", "running")
    pop_actual_retry_topic: bool = _option(False, "popResponseReturnActualRetryTopic", "running")
    pop_from_memory: bool = _option(True, "initPopOffsetByCheckMsgInMem", "running")
    pops_held_of_place: int = _option(1024, "popPollingSize", "running", low=1)
    pops_held_max: int = _option(100_000, "maxPopPollingSize", "running", low=1)
    revive_interval_ms: int = _option(1000, "reviveInterval", "running", low=10)
    revive_queues: int = _option(8, "reviveQueueNum", low=1, high=64)
    timer_topic: bool = _option(True, "timerWheelEnable")
    topics_max: int = _option(100_000, "maxTopicNums", low=64)  # ours
    topic_queues_max: int = _option(4096, "maxTopicQueueNums", low=1, high=65536)  # ours
    # consumers
    long_polling: bool = _option(True, "longPollingEnable", "running")
    short_polling_ms: int = _option(1000, "shortPollingTimeMills", "running", low=1)
    broadcast_offsets: bool = _option(True, "enableBroadcastOffsetStore", "running")
    broadcast_expire_s: int = _option(120, "broadcastOffsetExpireSecond", "running", low=1)
    broadcast_expire_max_s: int = _option(300, "broadcastOffsetExpireMaxSecond", "running", low=1)
    server_assigns: bool = _option(True, "serverLoadBalancerEnable", "running")
    default_request_mode: str = _option("PULL", "defaultMessageRequestMode", "running")
    pop_share_queues: int = _option(-1, "defaultPopShareQueueNum", "running", low=-1, high=1 << 20)
    route_period_ms: int = _option(30_000, "loadBalancePollNameServerInterval", low=100)
    lite_pull: bool = _option(True, "litePullMessageEnable", "running")
    property_filter: bool = _option(False, "enablePropertyFilter", "running")
    filter_retries: bool = _option(False, "filterSupportRetry", "running")
    filter_chars_max: int = _option(1 << 18, "maxFilterCacheChars", "running", low=1 << 16)  # ours
    slave_read: bool = _option(False, "slaveReadEnable", "running")
    reject_pull_consumers: bool = _option(False, "rejectPullConsumerEnable", "running")
    notify_consumers: bool = _option(True, "notifyConsumerIdsChangedEnable", "running")
    offsets_save_ms: int = _option(5000, "flushConsumerOffsetInterval", "running", low=100)
    offsets_version_step: int = _option(500, "consumerOffsetUpdateVersionStep", low=1)
    server_side_reset: bool = _option(True, "useServerSideResetOffset", "running")
    channel_expired_ms: int = _option(120_000, "channelExpiredTimeout", low=1000)
    subscription_expired_ms: int = _option(600_000, "subscriptionExpiredTimeout", low=1000)
    split_metadata: bool = _option(True, "enableSplitMetadata")
    split_metadata_size: int = _option(2000, "splitMetadataSize", low=1)
    # administration
    accept_sends_from_ms: int = _option(0, "startAcceptSendRequestTimeStamp", "running")
    config_black_list: str = _option("configBlackList;brokerConfigPath", "configBlackList")
    held_pulls_max: int = _option(100_000, "maxHeldPulls", "running", low=1)  # ours
    connection_bytes_max: int = _option(1 << 30, "maxConnectionBytes", low=64 << 20)  # ours
    fast_path: bool = _option(True, "fastPath")  # ours
    fast_sockets: bool = _option(True, "fastSockets")  # ours
    frame_bytes_max: int = _option(
        16 << 20, "com.rocketmq.remoting.frameMaxLength", low=1 << 16, high=16 << 20
    )

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Of `messageDelayLevel`: numbers with a unit s, m, h or d. ValueError names what is wrong."""
        units = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
        levels = []
        for word in self.delay_levels.split():
            if word[-1] not in units or not word[:-1].isdecimal():
                raise ValueError(f"messageDelayLevel: {word!r} is no number with a unit s, m, h or d")
            levels.append(int(word[:-1]) * units[word[-1]])
        return tuple(levels)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Of `deleteWhen`: hours of the day, local time. ValueError names what is wrong."""
        words = self.delete_when.rstrip(";").split(";")
        hours = frozenset(int(word) if word.isdecimal() and len(word) < 3 else 24 for word in words)
        if max(hours) > 23:
            raise ValueError(
                f"deleteWhen must be hours 0 to 23 with ; between them, not {self.delete_when[:64]!r}"
            )
        return hours

    @property
    def multi_dispatch(self) -> bool:
        """Messages may name light queues."""
        return self.lmq and self.multi

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"


def options_by_key() -> dict[str, dataclasses.Field[Any]]:
    """Apache's key → the field that holds it."""
    return {field.metadata["key"]: field for field in dataclasses.fields(Options)}


def text_of(value: object) -> str:
    """A value as Java prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(field: dataclasses.Field[Any], text: str) -> bool | int | str:
    """The typed value of an option's text; ValueError names the key."""
    key = field.metadata["key"]
    if field.type is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, not {text[:64]!r}")
        return text.lower() == "true"
    if field.type is int:
        if not text.lstrip("-").isdecimal():
            raise ValueError(f"{key} must be a whole number, not {text[:64]!r}")
        number = int(text)
        low, high = field.metadata["low"], field.metadata["high"]
        if not low <= number <= high:
            raise ValueError(f"{key} must be {low} to {high}, not {number}")
        if key == "timerPrecisionMs":  # as Apache takes it
            return max(step for step in TIMER_STEPS_MS if step <= max(number, TIMER_STEPS_MS[0]))
        return number
    if key == "messageDelayLevel":
        _ = Options(delay_levels=text).delay_levels_ms
    if key == "deleteWhen":
        _ = Options(delete_when=text).delete_hours
    if key == "defaultMessageRequestMode" and text not in ("PULL", "POP"):
        raise ValueError(f"defaultMessageRequestMode must be PULL or POP, not {text[:64]!r}")
    if key == "flushDiskType" and text not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ValueError(f"flushDiskType must be ASYNC_FLUSH or SYNC_FLUSH, not {text[:64]!r}")
    return text
