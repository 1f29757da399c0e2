"""The public names of `firearrow.client`, imported from the modules that define them."""

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.call_hooks import Call, Caller, CallHook, CallKind, add_call_hook, remove_call_hook
from firearrow.client.base.compression import BodyUnreadable
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    InvalidReceiptHandle,
    MessageRefused,
    NoNameServer,
    NoReplyAddress,
    NoRoute,
    NotRunning,
    OffsetUnknown,
    OnlyFireArrow,
    RequestReplyTimeout,
    RequestTimeout,
    RocketMQError,
    TooManyRequests,
    TransportError,
)
from firearrow.client.base.hooks import (
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterHook,
    ForbiddenCheck,
    RpcHook,
    SendContext,
    SendHook,
)
from firearrow.client.base.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.base.options import (
    ClientOptions,
    CompressionKind,
    ConsumeFromWhere,
    Credentials,
    MessageModel,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
    SocksProxy,
    TlsOptions,
)
from firearrow.client.base.reports import ConnectionDown, ConnectionUp, Health, QueuesAssigned, QueuesRevoked
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consume.consume_results import Accepted, ConsumeResult, DeadLetter, Retry, Suspend
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.local_broker import LocalBroker, LocalBrokerError
from firearrow.client.rebalance.allocate_strategies import (
    ConsistentHash,
    FixedQueues,
    MachineRoom,
    MachineRoomNearby,
)
from firearrow.client.send.batch import split
from firearrow.client.send.producer import Producer
from firearrow.client.send.queue_selection import by_hash, by_random
from firearrow.client.send.transactions import Transaction, TransactionResult, TransactionState

__all__ = [
    "Accepted",
    "Admin",
    "BodyUnreadable",
    "BrokerError",
    "Call",
    "CallHook",
    "CallKind",
    "Caller",
    "ClientError",
    "ClientOptions",
    "CompressionKind",
    "ConfigError",
    "ConnectFailed",
    "ConnectionDown",
    "ConnectionLost",
    "ConnectionUp",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "EndTransactionContext",
    "EndTransactionHook",
    "Extensions",
    "FilterHook",
    "FixedQueues",
    "ForbiddenCheck",
    "Health",
    "InvalidReceiptHandle",
    "LocalBroker",
    "LocalBrokerError",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageRefused",
    "NoNameServer",
    "NoReplyAddress",
    "NoRoute",
    "NotRunning",
    "OffsetUnknown",
    "OnlyFireArrow",
    "Operations",
    "PopConsumer",
    "PopConsumerOptions",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullConsumerOptions",
    "PushConsumer",
    "PushConsumerOptions",
    "QueuesAssigned",
    "QueuesRevoked",
    "ReceivedMessage",
    "RequestReplyTimeout",
    "RequestTimeout",
    "Retry",
    "RocketMQError",
    "RpcHook",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "ServiceState",
    "SocksProxy",
    "Suspend",
    "TlsOptions",
    "TooManyRequests",
    "Transaction",
    "TransactionResult",
    "TransactionState",
    "TransportError",
    "add_call_hook",
    "by_hash",
    "by_random",
    "remove_call_hook",
    "split",
]
