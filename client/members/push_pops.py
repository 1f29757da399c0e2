"""PopRuntime: the POP side of a push consumer whose queues brokers assign: loop, service and acknowledgements together.

It works beside the pull side, with the same handlers. Event loop only.
"""

from collections.abc import Callable, Sequence

from firearrow.client.base.hooks import ConsumeHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import DEAD_LETTER
from firearrow.client.consume.send_back import SendBack
from firearrow.client.diagnostics.stats import ConsumerStats
from firearrow.client.members.push_service import handlers
from firearrow.client.members.push_setting import PushConsumerConfig
from firearrow.client.pop.ack import AckClient
from firearrow.client.pop.pop_loop import PopClient, PopLoop, PopLoopContext
from firearrow.client.pop.pop_service import PopService
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.remoting.client_instance import ClientInstance


class PopRuntime:
    def __init__(
        self,
        config: PushConsumerConfig,
        hooks: Sequence[ConsumeHook],
        *,
        instance: ClientInstance,
        stats: ConsumerStats,
        back: SendBack,
        running: Callable[[], bool],
        paused: Callable[[], bool],
    ) -> None:
        options = config.options
        self.service = PopService(
            handlers(config, hooks, stats),
            acks=AckClient(instance, config.group, instance.options.api_timeout_s),
            max_reconsume_times=back.max_reconsume_times,
            dead_letter=lambda message: back.back(message, DEAD_LETTER),
        )
        self.loop = PopLoop(
            PopLoopContext(
                group=config.group,
                options=options,
                pop=PopClient(instance).pop,
                sink=self.service,
                subscriptions=config.subscriptions,
                running=running,
                paused=paused,
                stats=stats,
                max_reconsume_times=back.max_reconsume_times,
                filters=config.filter_hooks,
                exception_delay_s=instance.options.exception_delay_s,
            )
        )

    def begin(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.loop.begin(queue, process_queue)

    async def stop(self, drain_s: float) -> None:
        """Pop no more; handlers that run may finish for so long, and their results are told."""
        await self.loop.stop()
        await self.service.stop(drain_s)
