"""Actors of a shop with dramatiq. Name servers come from NAMESRV_ADDR.

pip install 'firearrow[dramatiq]'
dramatiq shop --processes 1 --threads 4    # runs the actors
python send.py                             # sends some messages
"""

import dramatiq

from firearrow.client.integrations.dramatiq import RocketMQBroker, TaskOptions

broker = RocketMQBroker(
    group_name="shop", options=TaskOptions(invisible_s=30, max_attempts=5, send_timeout_s=30)
)
dramatiq.set_broker(broker)
refused: set[str] = set()


@dramatiq.actor(queue_name="bills")
def bill(order: str, euros: float) -> None:
    print(f"bill {order}: {euros:.2f} euros", flush=True)
    thank.send_with_options(args=(order,), delay=2000)


@dramatiq.actor(queue_name="bills", min_backoff=1000, max_backoff=1000, max_retries=3)
def charge(order: str) -> None:
    """The bank refuses the first attempt; dramatiq sends the message again after a second."""
    if order not in refused:
        refused.add(order)
        raise ConnectionError("the bank does not answer")
    print(f"charged {order}", flush=True)


@dramatiq.actor(queue_name="mail")
def thank(order: str) -> None:
    print(f"thanks for {order}", flush=True)


@dramatiq.actor(queue_name="bills", max_retries=0)
def poison() -> None:
    """It becomes a dead letter: `firearrow dlq show shop-bills` shows it."""
    raise ValueError("this order cannot be read")
