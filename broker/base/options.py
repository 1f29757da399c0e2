"""Options of the broker: each declared once with Apache's key, default, range and meaning. A frozen value.

docs/OPTIONS.md is generated from this file: the string after an option is its line there.
"""

import dataclasses
import re
import socket
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

Change = Literal["running", "start"]
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
LABELS_MAX = 16
HA_SECRET_BYTES_MIN = 16
"""Who reads a handshake of a pair can try secrets against its proof, so short ones are refused."""
LEAST_BYTES = {"maxConnectionBytes": 16 << 20, "maxReplyBytesWaiting": 1 << 16}
"""Of options for which 0 means that the broker chooses."""
PROXIES_KEY = "proxyProtocolTrustedAddresses"
TIMER_STEPS_MS = (100, 200, 500, 1000)
NO_LIMIT = 1 << 62
INT_MAX = (1 << 31) - 1
"""Largest value of the options that are an `int` in Apache's classes."""
NOT_EMPTY = frozenset(
    ("brokerName", "brokerClusterName", "bindAddress", "storePathRootDir", "msgTraceTopicName")
)


def _option(
    default: Any,  # noqa: ANN401
    key: str,
    change: Change = "start",
    low: int = 0,
    high: int = INT_MAX,
    choices: tuple[str, ...] = (),
    *,
    secret: bool = False,
) -> Any:  # noqa: ANN401
    """`change`: until when it can be set. `low` and `high` bound a number; `choices` are all values of a
    string. `secret`: the value is never printed or answered."""
    metadata = {
        "key": key,
        "change": change,
        "low": low,
        "high": high,
        "choices": choices,
        "secret": secret,
    }
    return dataclasses.field(default=default, metadata=metadata)


def host_name() -> str:
    """The brokerName of a new store."""
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Options:
    """A name ends in its unit. Keys and defaults are Apache's, except for the keys that `apache_keys.txt`
    lacks. Nothing compares or prints whole options, and making the methods for it takes 3 % of a start."""

    # identity and network
    cluster_name: str = _option("DefaultCluster", "brokerClusterName")
    """The cluster; also names its topic, reply topic and revive topic."""
    broker_name: str = _option("", "brokerName")
    """The name in routes, queues and recall handles."""
    broker_id: int = _option(0, "brokerId")
    """Above 0 for a slave; a master has 0."""
    broker_ip: str = _option("", "brokerIP1")
    """The address given to clients; empty: that of the connection or host."""
    name_servers: str = _option("", "namesrvAddr")
    """Outside name servers, `host:port` separated by `;`."""
    bind_address: str = _option("127.0.0.1", "bindAddress")
    """Where the broker listens; Apache's default is `0.0.0.0`, all addresses."""
    listen_port: int = _option(10911, "listenPort", high=65535)
    """The broker's port; VIP clients use two below; 0 finds a free pair."""
    grpc_port: int = _option(8081, "grpcServerPort", high=65535)
    """A port for 5.x clients alone, whom the broker's port serves as well; 0: none; the default one is left out with
    `listenPort=0`, or if it is in use."""
    grpc_signature_age_s: int = _option(0, "grpcSignatureMaxAgeSec", "running", high=86_400)
    """Refuses signed calls of 5.x clients whose `x-mq-date-time` is further from the broker's time; 0: none;
    Python's client 5.1.2 sends local time."""
    grpc_message_bytes_max: int = _option(
        130 << 20, "grpcMaxInboundMessageSize", "running", low=1 << 16, high=1 << 30
    )
    """Largest request of a 5.x client; of its proxy in Apache, as is `grpcServerPort`."""
    advertised_port: int = _option(0, "advertisedPort", high=65535)
    """The port given to clients, where a container or router maps another one; 0: the broker's own."""
    proxies: str = _option("", "proxyProtocolTrustedAddresses")
    """Addresses and networks, separated by `;`, whose connections may start with a PROXY header."""
    idle_s: int = _option(120, "serverChannelMaxIdleTimeSeconds", "running", low=1)
    """Closes idle connections."""
    broker_permission: int = _option(6, "brokerPermission", "running", high=7)
    """Sum of 4 (read), 2 (write) and 1 (inherit); limits all topics' routes."""
    region_id: str = _option("DefaultRegion", "regionId", "running")
    """The region (`MSG_REGION`) in messages and answers, for traces."""
    trace_on: bool = _option(True, "traceOn", "running")
    """Asks producers to record message traces."""
    register_period_ms: int = _option(30_000, "registerNameServerPeriod")
    """Period of registration, limited to 10 to 60 s."""
    # replication
    broker_role: str = _option("ASYNC_MASTER", "brokerRole", choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))
    """SYNC_MASTER waits for `inSyncReplicas` copies; SLAVE copies the master of its `brokerName`."""
    ha_port: int = _option(0, "haListenPort", high=65535)
    """Where slaves copy the log; 0: one above the broker's with SYNC_MASTER or `enableSlaveActingMaster`,
    else closed."""
    ha_master_address: str = _option("", "haMasterAddress")
    """A slave's master, `host:port` of its replication port; empty: from the name server."""
    ha_ip: str = _option("", "brokerIP2")
    """The address of `haListenPort` for slaves; empty: the one that reaches the name server."""
    ha_allowed: str = _option("", "haAllowedAddresses", "running")
    """Addresses and networks, separated by `;`, that may copy the log; empty: loopback, and slaves of this
    process's name server."""
    ha_secret: str = _option("", "haSecret", secret=True)
    """A secret of FireArrow's brokers, at least 16 bytes; empty: they replicate on one machine only."""
    ha_heartbeat_ms: int = _option(5000, "haSendHeartbeatInterval", "running", low=100)
    """The silence after which either end of a replication connection reports its offset."""
    ha_housekeeping_ms: int = _option(20_000, "haHousekeepingInterval", "running", low=200)
    """The silence after which either end closes a replication connection."""
    ha_piece_bytes: int = _option(32_768, "haTransferBatchSize", "running", low=1024, high=(4 << 20) - 12)
    """Most bytes of one transfer."""
    ha_gap_bytes: int = _option(256 << 20, "haMaxGapNotInSync", "running", low=1, high=NO_LIMIT)
    """A slave with a larger gap is not in sync."""
    slave_timeout_ms: int = _option(3000, "slaveTimeout", "running", low=1)
    """With SYNC_MASTER, the wait for slaves, then FLUSH_SLAVE_TIMEOUT; a later slave is not in sync until it
    has caught up."""
    in_sync_replicas: int = _option(1, "inSyncReplicas", "running", low=1, high=64)
    """With SYNC_MASTER, the copies that a message needs, the master's included."""
    min_in_sync_replicas: int = _option(1, "minInSyncReplicas", "running", low=1, high=64)
    """With SYNC_MASTER, sends are refused while fewer copies are in sync."""
    auto_in_sync_replicas: bool = _option(False, "enableAutoInSyncReplicas", "running")
    """While fewer than `inSyncReplicas` are in sync, those suffice."""
    controller_mode: bool = _option(False, "enableControllerMode")
    """Apache's controllers decide the role, whatever `brokerRole` and `brokerId` are."""
    controllers: str = _option("", "controllerAddr")
    """The controllers, `host:port` separated by `;`."""
    all_members_acknowledge: bool = _option(False, "allAckInSyncStateSet", "running")
    """Under controllers, sends and readers wait for the whole sync state set."""
    catch_up_ms: int = _option(15_000, "haMaxTimeSlaveNotCatchup", "running", low=100)
    """Under controllers, a slave late for this time leaves the sync state set."""
    from_last_file: bool = _option(False, "syncFromLastFile")
    """Under controllers, a new slave copies only the master's last file."""
    async_learner: bool = _option(False, "asyncLearner")
    """Under controllers, a slave that never becomes the master."""
    election_priority: int = _option(INT_MAX, "brokerElectionPriority")
    """Of brokers with equally long logs, controllers elect the smallest."""
    controller_timeout_ms: int = _option(10_000, "controllerHeartBeatTimeoutMills", low=100)
    """The silence after which controllers elect another master."""
    controller_metadata_ms: int = _option(10_000, "syncControllerMetadataPeriod", low=100)
    """How often the broker asks for the leading controller."""
    broker_metadata_ms: int = _option(5000, "syncBrokerMetadataPeriod", low=100)
    """How often the broker asks for its master."""
    sync_set_check_ms: int = _option(5000, "checkSyncStateSetPeriod", low=100)
    """How often a master removes late slaves from the sync state set."""
    read_unconfirmed: bool = _option(False, "readUnconfirmedMessages", "running")
    """With SYNC_MASTER, consumers see unconfirmed messages, as with Apache."""
    acting_master: bool = _option(False, "enableSlaveActingMaster")
    """Without a master, a slave serves reads, commits and locks; needed at all brokers of a name, with
    `supportActingMaster` at the name server."""
    total_replicas: int = _option(1, "totalReplicas", low=1, high=64)
    """Brokers of this name, for reports of missing slaves and the start with `enableSlaveActingMaster`."""
    skip_pre_online: bool = _option(False, "skipPreOnline")
    """A master serves at once, whatever `totalReplicas` is."""
    heartbeat_interval_ms: int = _option(1000, "brokerHeartbeatInterval", low=100)
    """Period of heartbeats to controllers and, with `enableSlaveActingMaster`, name servers."""
    not_active_timeout_ms: int = _option(10_000, "brokerNotActiveTimeoutMillis", low=1000)
    """With `enableSlaveActingMaster`, the silence after which name servers drop the broker."""
    member_period_ms: int = _option(1000, "syncBrokerMemberGroupPeriod", low=100)
    """With `enableSlaveActingMaster`, how often the broker asks for the brokers of its name."""
    old_name_servers: bool = _option(True, "compatibleWithOldNameSrv")
    """Heartbeats and questions use requests that name servers of 4.x know."""
    # TLS
    tls_mode: str = _option("", "tls.server.mode", choices=("", "disabled", "permissive", "enforcing"))
    """Empty: disabled without a certificate, enforcing if clients need one, else permissive (TLS and plain)."""
    tls_test_mode: str = _option("", "tls.test.mode.enable", choices=("", "true", "false"))
    """`true` makes a certificate at each start, which clients cannot check; needs openssl or `firearrow[tls]`."""
    tls_certificate: str = _option("", "tls.server.certPath")
    """The broker's certificate with its chain (PEM)."""
    tls_key: str = _option("", "tls.server.keyPath")
    """The certificate's private key (PEM)."""
    tls_key_password: str = _option("", "tls.server.keyPassword", secret=True)
    """The password of `tls.server.keyPath`."""
    tls_client_auth: str = _option(
        "none", "tls.server.need.client.auth", choices=("none", "optional", "require")
    )
    """Whether clients need a certificate; needs `tls.server.authClient`, and `require` makes the mode
    `enforcing`."""
    tls_check_clients: bool = _option(False, "tls.server.authClient")
    """Checks clients' certificates against `tls.server.trustCertPath`."""
    tls_client_authorities: str = _option("", "tls.server.trustCertPath")
    """The authorities of clients' certificates (PEM); empty: the system's."""
    tls_ciphers: str = _option("", "tls.ciphers")
    """Cipher suites of TLS 1.2, named as in Java or OpenSSL, separated by commas; empty: Python's choice."""
    tls_protocols: str = _option("", "tls.protocols")
    """`TLSv1.2`, `TLSv1.3`, or both with a comma; empty: both."""
    tls_file: str = _option("/etc/rocketmq/tls.properties", "tls.config.file")
    """A file with these keys, except `tls.server.mode` and `tls.enable`; it takes precedence."""
    tls_outgoing: bool = _option(False, "tls.enable")
    """Speaks TLS to outside name servers."""
    tls_outgoing_too: bool = _option(False, "useTLS")
    """As `tls.enable`."""
    tls_check_servers: bool = _option(False, "tls.client.authServer")
    """Checks certificates and host names of outside name servers."""
    tls_server_authorities: str = _option("", "tls.client.trustCertPath")
    """The authorities of name servers' certificates (PEM); empty: the system's."""
    tls_client_certificate: str = _option("", "tls.client.certPath")
    """The broker's certificate for outside name servers (PEM)."""
    tls_client_key: str = _option("", "tls.client.keyPath")
    """The private key of `tls.client.certPath`."""
    tls_client_key_password: str = _option("", "tls.client.keyPassword", secret=True)
    """The password of `tls.client.keyPath`."""
    # the store
    store_root: str = _option("", "storePathRootDir")
    """The store (Apache: `~/store`)."""
    commitlog_path: str = _option("", "storePathCommitLog")
    """The log's own folder; empty: `commitlog` in the store."""
    segment_bytes: int = _option(1 << 30, "mappedFileSizeCommitLog", low=1 << 16)
    """Size of a log file; a store keeps its size."""
    queue_file_bytes: int = _option(6_000_000, "mappedFileSizeConsumeQueue", low=20)
    """Size of a queue file, rounded up to 20 bytes; a store keeps its size."""
    batch_queue_file_bytes: int = _option(13_800_000, "mapperFileSizeBatchConsumeQueue", low=46)
    """Size of a queue file of BatchCQ topics, rounded up to 46 bytes; a store keeps its size."""
    compaction_enabled: bool = _option(True, "enableCompaction")
    """Compacts topics with `cleanup.policy=COMPACTION`; `false`: their messages expire like others."""
    compaction_file_bytes: int = _option(100 << 20, "compactionMappedFileSize", low=1 << 10)
    """Size of a file of compacted messages, rounded to a multiple of `compactionCqMappedFileSize`; a queue keeps its
    size."""
    compaction_queue_file_bytes: int = _option(10 << 20, "compactionCqMappedFileSize", low=92)
    """Size of a file of their entries, rounded down to 46 bytes; a queue keeps its size."""
    compaction_interval_ms: int = _option(900_000, "compactionScheduleInternal", "running", low=1)
    """Pause between two compactions."""
    compaction_map_bytes: int = _option(100 << 20, "maxOffsetMapSize", "running")
    """Memory of a compaction, 192 bytes for a key; with more keys several compactions are needed."""
    index_enabled: bool = _option(True, "messageIndexEnable")
    """Indexes messages by key and unique id for queries."""
    index_slots: int = _option(5_000_000, "maxHashSlotNum", low=1, high=(1 << 31) - 1)
    """Hash slots of a new index file."""
    index_entries: int = _option(20_000_000, "maxIndexNum", low=2, high=(1 << 31) - 1)
    """Entries of a new index file."""
    check_crc: bool = _option(True, "checkCRCOnRecover")
    """Recovery after a crash checks the CRC of each record."""
    flush_disk_type: str = _option("ASYNC_FLUSH", "flushDiskType", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    """SYNC_FLUSH answers a send once its message is on the disk."""
    flush_interval_ms: int = _option(500, "flushIntervalCommitLog", "running", low=1)
    """Period of syncs with ASYNC_FLUSH."""
    queue_flush_interval_ms: int = _option(1000, "flushIntervalConsumeQueue", "running", low=1)
    """Period of syncs of queues and index."""
    sync_flush_timeout_ms: int = _option(5000, "syncFlushTimeout", "running", low=1)
    """With SYNC_FLUSH, the wait for the disk, then FLUSH_DISK_TIMEOUT."""
    max_message_bytes: int = _option(
        4 << 20, "maxMessageSize", "running", low=10, high=(16 << 20) - (1 << 17)
    )
    """Largest body of a message or batch."""
    bytes_in_memory: int = _option(262_144, "maxTransferBytesOnMessageInMemory", "running", high=8 << 20)
    """Most bytes of recent messages in a pull."""
    count_in_memory: int = _option(32, "maxTransferCountOnMessageInMemory", "running", low=1, high=1024)
    """Most recent messages in a pull."""
    bytes_on_disk: int = _option(65_536, "maxTransferBytesOnMessageInDisk", "running", high=8 << 20)
    """Most bytes of old messages in a pull."""
    count_on_disk: int = _option(8, "maxTransferCountOnMessageInDisk", "running", low=1, high=1024)
    """Most old messages in a pull."""
    in_memory_percent: int = _option(40, "accessMessageInMemoryMaxRatio", "running", high=100)
    """This share of memory, of the log's newest part, counts as recent."""
    filter_bytes: int = _option(16_000, "maxFilterMessageSize", "running", low=20, high=1 << 20)
    """Queue entries (in bytes, 20 each) that a filtering pull examines."""
    query_count: int = _option(64, "maxMsgsNumBatch", "running", low=1, high=1024)
    """Most messages of a query by key."""
    unique_query_count: int = _option(32, "defaultQueryMaxNum", "running", low=1, high=1024)
    """Most messages of a query by unique id."""
    delay_levels: str = _option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "messageDelayLevel"
    )
    """Delays of levels 1, 2, 3 … in s, m, h or d."""
    lmq: bool = _option(False, "enableLmq")
    """Serves light message queues (LMQ)."""
    multi: bool = _option(False, "enableMultiDispatch")
    """With `enableLmq`, dispatches to the queues of `INNER_MULTI_DISPATCH`."""
    lmq_max: int = _option(20_000, "maxLmqConsumeQueueNum", "running", high=1 << 24)
    """Most light message queues."""
    lite_ttl_check_ms: int = _option(120_000, "liteTtlCheckInterval", "running", low=100)
    """How often lite topics are looked at that may have expired."""
    lite_ttl_min_ms: int = _option(900_000, "minLiteTTl", "running")
    """The shortest time after which a lite topic expires; none does so soon after a start."""
    lite_subscriptions_max: int = _option(100_000, "maxLiteSubscriptionCount", "running", high=1 << 24)
    """Most subscriptions to lite topics, of all clients together."""
    lite_subscription_check_ms: int = _option(120_000, "liteSubscriptionCheckInterval", "running", low=100)
    """How often subscriptions to lite topics are looked at that may have expired."""
    lite_subscription_expired_ms: int = _option(
        180_000, "liteSubscriptionCheckTimeoutMills", "running", low=1000
    )
    """How long a client may send no subscription to lite topics before it has none."""
    store_replies: bool = _option(True, "storeReplyMessageEnable", "running")
    """Also stores the replies that it pushes."""
    reply_bytes_max: int = _option(0, "maxReplyBytesWaiting", "running", high=NO_LIMIT)
    """Most bytes of replies being pushed; 0: 64 MiB, less in a small container."""
    # retention
    reserved_hours: int = _option(72, "fileReservedTime", "running", high=1 << 24)
    """How long a log file is kept; also the longest life of a half message."""
    delete_when: str = _option("04", "deleteWhen", "running")
    """Hours, local time, in which expired files are deleted, separated by `;`."""
    clean_interval_ms: int = _option(10_000, "cleanResourceInterval", "running", low=10)
    """How often the disk is measured and files are deleted."""
    delete_files_max: int = _option(10, "deleteFileBatchMax", "running", low=1)
    """Most log files deleted in one round."""
    delete_interval_ms: int = _option(100, "deleteCommitLogFilesInterval", "running")
    """Pause between deleted log files."""
    queue_delete_interval_ms: int = _option(100, "deleteConsumeQueueFilesInterval", "running")
    """Pause between deleted queue files."""
    redelete_interval_ms: int = _option(120_000, "redeleteHangedFileInterval", "running")
    """When to try a failed deletion again."""
    disk_reclaim_percent: int = _option(75, "diskMaxUsedSpaceRatio", "running", high=100)
    """Above it, expired files are deleted at any hour; limited to 10 to 95."""
    disk_force_percent: int = _option(85, "diskSpaceCleanForciblyRatio", "running", high=100)
    """Above it, the oldest files are deleted before they expire; limited to 30 to 85."""
    disk_full_percent: int = _option(90, "diskSpaceWarningLevelRatio", "running", high=100)
    """Above it, sends are refused; limited to 35 to 90."""
    clean_forcibly: bool = _option(True, "cleanFileForciblyEnable", "running")
    """Allows the deletion of files that have not expired."""
    # timer messages
    timer_precision_ms: int = _option(1000, "timerPrecisionMs")
    """Step of the timer wheel, rounded down to 100, 200, 500 or 1000."""
    timer_max_delay_s: int = _option(259_200, "timerMaxDelaySec", "running", low=1)
    """Longest delay of timer messages, and longest invisible time."""
    timer_roll_slots: int = _option(172_800, "timerRollWindowSlot")
    """A message due in more steps is stored again on the way."""
    timer_log_file_bytes: int = _option(104_857_600, "mappedFileSizeTimerLog", low=120, high=1 << 30)
    """Size of a new timer log file."""
    timer_slot_messages: int = _option((1 << 31) - 1, "timerCongestNumEachSlot", "running", low=1)
    """Most messages due in one step; above it sends are refused at random."""
    recall: bool = _option(False, "recallMessageEnable", "running")
    """Allows recalls of timer messages."""
    recall_unwritable: bool = _option(True, "allowRecallWhenBrokerNotWriteable", "running")
    """Allows recalls while `brokerPermission` forbids writes."""
    recall_key_with_topic: bool = _option(False, "appendTopicForTimerDeleteKey", "running")
    """Recalls name topic and unique id, not the id alone."""
    # transactions
    reject_transactions: bool = _option(False, "rejectTransactionMessage", "running")
    """Refuses transactions."""
    transaction_timeout_ms: int = _option(6000, "transactionTimeOut", "running", high=NO_LIMIT)
    """Age at which a half message is first checked, unless it sets its own."""
    transaction_check_max: int = _option(15, "transactionCheckMax", "running", low=1)
    """Checks before a half message is discarded."""
    transaction_check_interval_ms: int = _option(
        30_000, "transactionCheckInterval", "running", low=10, high=NO_LIMIT
    )
    """How often half messages are checked."""
    transaction_op_bytes: int = _option(4096, "transactionOpMsgMaxSize", "running", low=1, high=1 << 16)
    """Largest body of an op message."""
    halves_max: int = _option(1 << 24, "maxHalfMessagesWaiting", "running", low=1)
    """Most undecided half messages; others are refused as busy."""
    # topics and groups
    auto_create_topics: bool = _option(True, "autoCreateTopicEnable", "running")
    """Creates an unknown topic at its first send, after `TBW102`."""
    default_queues: int = _option(8, "defaultTopicQueueNums", low=1, high=4096)
    """Queues of the template `TBW102`, the most of a topic made by a send."""
    cluster_topic: bool = _option(True, "clusterTopicEnable")
    """Makes the topic named like the cluster usable."""
    broker_topic: bool = _option(True, "brokerTopicEnable")
    """Makes the topic named like the broker usable."""
    trace_topic: bool = _option(False, "traceTopicEnable")
    """Creates the trace topic at the start."""
    trace_topic_name: str = _option("RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName")
    """The topic of `traceTopicEnable`."""
    auto_create_groups: bool = _option(True, "autoCreateSubscriptionGroup", "running")
    """Creates an unknown group at its first use."""
    check_system_topics: bool = _option(True, "validateSystemTopicWhenUpdateTopic", "running")
    """Refuses changes to system topics."""
    mixed_message_type: bool = _option(False, "enableMixedMessageType", "running")
    """Allows topics of type MIXED."""
    pop_retry_probability: int = _option(20, "popFromRetryProbability", "running", high=100)
    """Percentage of POP requests that read the retry topic first."""
    pop_retry_probability_priority: int = _option(
        0, "popFromRetryProbabilityForPriority", "running", high=100
    )
    """The same for PRIORITY topics."""
    priority_ascending: bool = _option(True, "priorityOrderAsc", "running")
    """POP visits queues from the highest id, the highest priority, down."""
    separate_retry_queues: bool = _option(False, "useSeparateRetryQueue", "running")
    """POP retry topics have their topic's queues."""
    pop_retry_v2: bool = _option(False, "enableRetryTopicV2", "running")
    """Names POP retry topics `%RETRY%group+topic`, not `%RETRY%group_topic`."""
    pop_retry_v1_too: bool = _option(True, "retrieveMessageFromPopRetryTopicV1", "running")
    """With `enableRetryTopicV2`, also reads topics of the old name."""
    pop_actual_retry_topic: bool = _option(False, "popResponseReturnActualRetryTopic", "running")
    """Popped retries keep their retry topic's name."""
    pop_from_memory: bool = _option(True, "initPopOffsetByCheckMsgInMem", "running")
    """A new POP group starts at the first message if that is recent, else at the last."""
    pops_held_per_queue_max: int = _option(1024, "popPollingSize", "running", low=1)
    """Most held POP requests of one topic, group and queue."""
    pops_held_max: int = _option(100_000, "maxPopPollingSize", "running", low=1, high=NO_LIMIT)
    """Most held POP requests, and as many notifications."""
    revive_interval_ms: int = _option(1000, "reviveInterval", "running", low=10, high=NO_LIMIT)
    """How often expired invisible times are looked for."""
    revive_queues: int = _option(8, "reviveQueueNum", low=1, high=64)
    """Queues of the revive topic."""
    timer_topic: bool = _option(True, "timerWheelEnable")
    """Allows timer messages, and POP, which needs them."""
    topics_max: int = _option(100_000, "maxTopicNums", low=64)
    """Most topics."""
    topic_queues_max: int = _option(4096, "maxTopicQueueNums", low=1, high=65536)
    """Most read or write queues of a topic."""
    # consumers
    long_polling: bool = _option(True, "longPollingEnable", "running")
    """Holds a pull without a message, at most 10 min."""
    short_polling_ms: int = _option(1000, "shortPollingTimeMills", "running", low=1, high=NO_LIMIT)
    """How long a pull is held without `longPollingEnable`."""
    broadcast_offsets: bool = _option(True, "enableBroadcastOffsetStore", "running")
    """Also keeps offsets of broadcasting consumers."""
    broadcast_expire_s: int = _option(120, "broadcastOffsetExpireSecond", "running", low=1, high=NO_LIMIT)
    """The same for one that has left."""
    broadcast_expire_max_s: int = _option(
        300, "broadcastOffsetExpireMaxSecond", "running", low=1, high=NO_LIMIT
    )
    """When a connected broadcasting client without pulls is forgotten."""
    server_assigns: bool = _option(True, "serverLoadBalancerEnable", "running")
    """Splits queues among members that let brokers assign them."""
    default_request_mode: str = _option(
        "PULL", "defaultMessageRequestMode", "running", choices=("PULL", "POP")
    )
    """How members get messages whose queues the broker assigns."""
    pop_share_queues: int = _option(-1, "defaultPopShareQueueNum", "running", low=-1, high=1 << 20)
    """With POP, how many other members' queues a member pops; -1 or 0: all."""
    route_period_ms: int = _option(30_000, "loadBalancePollNameServerInterval", low=100, high=NO_LIMIT)
    """How long a route from an outside name server is used."""
    lite_pull: bool = _option(True, "litePullMessageEnable", "running")
    """Serves lite pulls."""
    property_filter: bool = _option(False, "enablePropertyFilter", "running")
    """Allows SQL92 filters."""
    filter_retries: bool = _option(False, "filterSupportRetry", "running")
    """Filters retried messages as well."""
    filter_chars_max: int = _option(1 << 18, "maxFilterCacheChars", "running", low=1 << 16)
    """Most characters of compiled filters that are kept; 8 times as many may be in use."""
    slave_read: bool = _option(False, "slaveReadEnable", "running")
    """A slave serves pulls; a master sends late readers there (`whichBrokerWhenConsumeSlowly`)."""
    offset_check: bool = _option(False, "offsetCheckInSlave", "running")
    """A slave answers pulls past its queue's end, instead of holding them."""
    reject_pull_consumers: bool = _option(False, "rejectPullConsumerEnable", "running")
    """Ignores heartbeats of pull consumers."""
    notify_consumers: bool = _option(True, "notifyConsumerIdsChangedEnable", "running")
    """Notifies a group when a member joins or leaves."""
    offsets_save_ms: int = _option(5000, "flushConsumerOffsetInterval", "running", low=100)
    """How often consumer offsets are saved."""
    offsets_version_step: int = _option(
        500, "consumerOffsetUpdateVersionStep", "running", low=1, high=NO_LIMIT
    )
    """Commits after which the offsets' data version increases."""
    server_side_reset: bool = _option(True, "useServerSideResetOffset", "running")
    """Resets offsets at the broker; false: at the clients, as Apache 4 does."""
    channel_expired_ms: int = _option(120_000, "channelExpiredTimeout", low=1000, high=NO_LIMIT)
    """Disconnects clients without heartbeats."""
    subscription_expired_ms: int = _option(600_000, "subscriptionExpiredTimeout", low=1000, high=NO_LIMIT)
    """Forgets subscriptions known from pulls or pops only."""
    split_metadata: bool = _option(True, "enableSplitMetadata", "running")
    """Answers requests for all topics or groups in pages."""
    split_metadata_size: int = _option(2000, "splitMetadataSize", "running", low=1)
    """Entries of a page of `enableSplitMetadata`."""
    # metrics
    metrics_exporter: str = _option("DISABLE", "metricsExporterType", choices=("DISABLE", "PROM"))
    """PROM serves metrics, health and status by HTTP; OTLP_GRPC and LOG are not there."""
    metrics_host: str = _option("", "metricsPromExporterHost")
    """Where metrics are served; empty: loopback."""
    metrics_port: int = _option(5557, "metricsPromExporterPort", high=65535)
    """The port of the metrics; 0 finds one."""
    metrics_label: str = _option("", "metricsLabel")
    """Labels of every series, `name:value` separated by `,`."""
    metrics_series_max: int = _option(50_000, "metricsOtelCardinalityLimit", low=2, high=1_000_000)
    """Most series of a metric; the rest is added up in one."""
    metrics_idle_groups: bool = _option(False, "metricsIdleGroups", "running")
    """Lags also of groups without members and lag in a topic; Apache has them always."""
    # console
    console_listen: str = _option("", "consoleListen")
    """Where a visit starts the web console of `firearrow[console]`, as HOST:PORT; empty: nowhere."""
    console_context: str = _option("", "consoleContext")
    """The context of `firearrow context` whose certificates the console uses; `tls.server.mode=enforcing` needs it."""
    console_read_only: bool = _option(False, "consoleReadOnly")
    """Whether the console has no actions."""
    console_mask_bodies: bool = _option(False, "consoleMaskBodies")
    """Whether the console shows no bodies of messages, whatever a user may do."""
    console_idle_ms: int = _option(600_000, "consoleIdleTimeout", low=1000, high=NO_LIMIT)
    """Ends the console's process after so long without a visit."""
    # users and rules
    authentication: bool = _option(False, "authenticationEnabled")
    """Each request must be signed by a user of `users.json`, also to the name server in this process."""
    authorization: bool = _option(False, "authorizationEnabled")
    """Refuses what no rule of `acls.json` allows; Super users may do everything."""
    initial_user: str = _option("", "initAuthenticationUser", secret=True)
    """`{"username":"…","password":"…"}`: a Super user, created at the start unless it exists."""
    inner_credentials: str = _option("", "innerClientAuthenticationCredentials", secret=True)
    """`{"accessKey":"…","secretKey":"…"}`: signs requests to other name servers; also created as a Super
    user."""
    authentication_whitelist: str = _option("", "authenticationWhitelist")
    """Request codes, separated by commas, that need no signature."""
    authorization_whitelist: str = _option("", "authorizationWhitelist")
    """Request codes, separated by commas, that every user may send."""
    authentication_strategy: str = _option("", "authenticationStrategy")
    """`…StatelessAuthenticationStrategy` or empty checks each signature, `…StatefulAuthenticationStrategy`
    one a minute."""
    authorization_strategy: str = _option("", "authorizationStrategy")
    """Empty or one of Apache's two, which do the same here."""
    authentication_provider: str = _option("", "authenticationProvider")
    """Empty or Apache's default class; others end the start."""
    authorization_provider: str = _option("", "authorizationProvider")
    """Empty or Apache's default class; others end the start."""
    user_provider: str = _option("", "authenticationMetadataProvider")
    """Empty or Apache's default class; others end the start."""
    rule_provider: str = _option("", "authorizationMetadataProvider")
    """Empty or Apache's default class; others end the start."""
    migrate_accounts: bool = _option(False, "migrateAuthFromV1Enabled")
    """Creates a user with rules for each account of `plain_acl.yml` that has none."""
    plain_acl: bool = _option(False, "aclEnable")
    """Checks requests by `plain_acl.yml`, as brokers up to 5.2 do, without `authenticationEnabled`;
    needs `firearrow[acl]`."""
    plain_acl_file: str = _option("", "rocketmq.acl.plain.file")
    """Path of `plain_acl.yml`; empty: `conf/plain_acl.yml` in `ROCKETMQ_HOME`."""
    audit_log: str = _option("", "authAuditLog")
    """A file with a line of JSON for each refusal and change of users and rules."""
    # administration
    accept_sends_from_ms: int = _option(0, "startAcceptSendRequestTimeStamp", "running", high=NO_LIMIT)
    """Refuses sends before this time (ms since 1970)."""
    config_black_list: str = _option("configBlackList;brokerConfigPath", "configBlackList")
    """Keys, separated by `;`, that no client may change."""
    held_pulls_max: int = _option(100_000, "maxHeldPulls", "running", low=1)
    """Most held pulls; others are answered at once."""
    connection_bytes_max: int = _option(0, "maxConnectionBytes", "running", high=NO_LIMIT)
    """Most buffered bytes of all connections, then the largest are closed; 0: 1 GiB, less in a small container."""
    fast_path: bool = _option(True, "fastPath")
    """Serves plain sends and pulls in compiled code, with the same answers."""
    fast_sockets: bool = _option(True, "fastSockets")
    """Serves sockets with FireArrow's own epoll loop."""
    frame_bytes_max: int = _option(
        16 << 20, "com.rocketmq.remoting.frameMaxLength", low=1 << 16, high=16 << 20
    )
    """Largest frame; a Java system property in Apache."""

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of `messageDelayLevel`. ValueError names the word that is wrong."""
        units = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
        levels = []
        for word in self.delay_levels.split():
            if word[-1] not in units or not word[:-1].isdecimal():
                raise ValueError(f"messageDelayLevel: {word!r} is not a number with a unit s, m, h or d")
            levels.append(int(word[:-1]) * units[word[-1]])
        return tuple(levels)

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of `deleteWhen`, local time. ValueError names the value."""
        words = self.delete_when.rstrip(";").split(";")
        hours = frozenset(int(word) if word.isdecimal() and len(word) < 3 else 24 for word in words)
        if max(hours) > 23:
            raise ValueError(
                f"deleteWhen must be hours 0 to 23 separated by ;, not {self.delete_when[:64]!r}"
            )
        return hours

    @property
    def ha_allowed_networks(self) -> "tuple[IPv4Network | IPv6Network, ...]":
        """The networks of `haAllowedAddresses`. ValueError names the word that is wrong."""
        return networks_of("haAllowedAddresses", self.ha_allowed)

    @property
    def proxy_networks(self) -> "tuple[IPv4Network | IPv6Network, ...]":
        """The networks of `proxyProtocolTrustedAddresses`. ValueError names the word that is wrong."""
        return networks_of(PROXIES_KEY, self.proxies)

    @property
    def metrics_labels(self) -> dict[str, str]:
        """The labels of `metricsLabel`. ValueError names the pair that is wrong."""
        found: dict[str, str] = {}
        for pair in filter(None, (word.strip() for word in self.metrics_label.split(","))):
            name, colon, value = pair.partition(":")
            if not colon or not _LABEL.fullmatch(name) or len(found) == LABELS_MAX:
                raise ValueError(
                    f"metricsLabel must be at most {LABELS_MAX} pairs name:value separated by , not {pair[:64]!r}"
                )
            found[name] = value
        return found

    @property
    def multi_dispatch(self) -> bool:
        """Messages may name light message queues (LMQ)."""
        return self.lmq and self.multi

    @property
    def client_port(self) -> int:
        """The port by which clients reach the broker; 0 until a port was found for `listenPort=0`."""
        return self.advertised_port or self.listen_port

    @property
    def all_acknowledge(self) -> bool:
        """Sends wait for all copies in the sync state set."""
        return self.controller_mode and self.all_members_acknowledge

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def starts_isolated(self) -> bool:
        """A master that asks its slaves before it serves."""
        acts = self.acting_master and not self.is_slave
        return acts and self.total_replicas > 1 and not self.skip_pre_online

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"


def networks_of(key: str, text: str) -> "tuple[IPv4Network | IPv6Network, ...]":
    """The addresses and networks that are separated by `;`. ValueError names the key and the word that is wrong."""
    from ipaddress import ip_network  # noqa: PLC0415 (few brokers have such an option)

    words = [word.strip() for word in text.replace(",", ";").split(";") if word.strip()]
    try:
        return tuple(ip_network(word, strict=False) for word in words)
    except ValueError as error:
        raise ValueError(f"{key} must be addresses or networks separated by ;: {str(error)[:99]}") from None


def options_by_key() -> dict[str, dataclasses.Field[Any]]:
    """Apache's key → the field that holds it."""
    return {field.metadata["key"]: field for field in dataclasses.fields(Options)}


def text_of(value: object) -> str:
    """The value as Java prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(field: dataclasses.Field[Any], text: str) -> bool | int | str:
    """The typed value that `text` means for an option. ValueError names the key and what is allowed."""
    key = field.metadata["key"]
    if field.type is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, not {text[:64]!r}")
        return text.lower() == "true"
    if field.type is int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{key} must be a whole number, not {text[:64]!r}")
        number = int(text)
        low, high = field.metadata["low"], field.metadata["high"]
        if not low <= number <= high:
            raise ValueError(f"{key} must be {low} to {high}, not {number}")
        if 0 < number < LEAST_BYTES.get(key, 0):
            raise ValueError(f"{key} must be 0 or at least {LEAST_BYTES[key]}, not {number}")
        if key == "timerPrecisionMs":  # rounded down, as Apache does
            return max(step for step in TIMER_STEPS_MS if step <= max(number, TIMER_STEPS_MS[0]))
        return number
    if not text and key in NOT_EMPTY:
        raise ValueError(f"{key} must not be empty")
    if key == "messageDelayLevel":
        _ = Options(delay_levels=text).delay_levels_ms
    if key == "haSecret" and 0 < len(text.encode()) < HA_SECRET_BYTES_MIN:
        raise ValueError(
            f"haSecret has {len(text.encode())} bytes, at least {HA_SECRET_BYTES_MIN} are needed"
        )
    if key == "haAllowedAddresses":
        _ = Options(ha_allowed=text).ha_allowed_networks
    if key == PROXIES_KEY:
        _ = Options(proxies=text).proxy_networks
    if key == "metricsLabel":
        _ = Options(metrics_label=text).metrics_labels
    if key == "deleteWhen":
        _ = Options(delete_when=text).delete_hours
    choices = field.metadata["choices"]
    if choices and text not in choices:
        raise ValueError(f"{key} must be {' or '.join(choices)}, not {text[:64]!r}")
    return text
