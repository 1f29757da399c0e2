"""The consume service of a push consumer, concurrent or in order, put together from what its user has said.

Nothing here runs: the service does, once it is started.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from firearrow.client.base.hooks import ConsumeHook
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import MessageModel
from firearrow.client.consume.concurrent_service import ConcurrentService
from firearrow.client.consume.consume_results import ConsumeService, concurrent_verdict, orderly_verdict
from firearrow.client.consume.invoke_listener import Handlers, ListenerInvoker
from firearrow.client.consume.listeners import HandlerThreads, Listeners
from firearrow.client.consume.orderly_service import BrokerLocks, OrderlyService
from firearrow.client.consume.send_back import ORDERLY_RECONSUME_MAX, RECONSUME_MAX, SendBack
from firearrow.client.diagnostics.stats import ConsumerStats
from firearrow.client.members.push_setting import PushConsumerConfig
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.remoting.client_instance import ClientInstance


def consume_service(
    config: PushConsumerConfig,
    hooks: Sequence[ConsumeHook],
    *,
    instance: ClientInstance,
    offsets: OffsetStore,
    table: Mapping[MessageQueue, ProcessQueue],
    stats: ConsumerStats,
    locks: BrokerLocks | None,
    publish: Callable[[Message], Awaitable[object]],
) -> ConsumeService:
    """`locks`: in order, and other members must be kept away. `publish`: to the group's retry topic."""
    options = config.options
    called = handlers(config, hooks, stats)
    back = send_back(config, instance, publish)
    if options.orderly:
        return OrderlyService(
            called,
            offsets=offsets,
            locks=locks,
            publish=back.publish,
            max_reconsume_times=back.max_reconsume_times,
            every=instance.every,
            rest_s=options.suspend_s,
            auto_commit=options.auto_commit,
        )
    return ConcurrentService(
        called,
        offsets=offsets,
        send_back=back.back if options.model is MessageModel.CLUSTERING else None,
        queues=table.values,
        every=instance.every,
        timeout_s=options.consume_timeout_s,
    )


def handlers(config: PushConsumerConfig, hooks: Sequence[ConsumeHook], stats: ConsumerStats) -> Handlers:
    """As the user's options want them, with threads of their own."""
    options = config.options
    threads = HandlerThreads(f"ConsumeMessageThread_{config.group}", options.threads)
    calls = ListenerInvoker(
        group=config.group,
        listeners=Listeners(config.subscriptions.handler_of, threads),
        judge=orderly_verdict if options.orderly else concurrent_verdict,
        stats=stats,
        hooks=hooks,
        namespace=config.namespace,
        timeout_s=options.consume_timeout_s,
    )
    return Handlers(calls=calls, threads=threads, at_a_time=options.threads, batch_size=options.batch_size)


def send_back(
    config: PushConsumerConfig, instance: ClientInstance, publish: Callable[[Message], Awaitable[object]]
) -> SendBack:
    most = config.options.max_reconsume_times
    if most < 0:
        most = ORDERLY_RECONSUME_MAX if config.options.orderly else RECONSUME_MAX
    return SendBack(
        group=config.group,
        max_reconsume_times=most,
        caller=instance,
        publish=publish,
        namespace=config.namespace,
    )
