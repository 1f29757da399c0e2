"""Tasks of a shop with taskiq. Name servers come from NAMESRV_ADDR.

pip install 'firearrow[taskiq]'
taskiq worker shop:broker --workers 2      # runs the tasks
taskiq scheduler shop:scheduler            # sends those that come by the clock
python send.py                             # sends some
"""

from taskiq import SmartRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource

from firearrow.client.integrations.taskiq import RocketMQBroker, TaskOptions

broker = RocketMQBroker(
    queue_name="shop",
    consumer_group_name="shop",
    additional_queues=["shop.mail"],
    options=TaskOptions(invisible_s=30, max_attempts=5),
).with_middlewares(SmartRetryMiddleware(default_delay=1))
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])
refused: set[str] = set()


@broker.task
async def bill(order: str, euros: float) -> None:
    print(f"bill {order}: {euros:.2f} euros", flush=True)
    await thank.kicker().with_labels(delay=2).kiq(order)


@broker.task(retry_on_error=True, max_retries=3)
async def charge(order: str) -> None:
    """The bank refuses the first attempt; the middleware sends the task again after a second."""
    if order not in refused:
        refused.add(order)
        raise ConnectionError("the bank does not answer")
    print(f"charged {order}", flush=True)


@broker.task(queue_name="shop.mail")
async def thank(order: str) -> None:
    print(f"thanks for {order}", flush=True)


@broker.task(schedule=[{"interval": 1}])
async def count_stock() -> None:
    print("stock counted", flush=True)
