"""The tasks of a shop: `celery -A shop worker` runs them, orders.py sends them."""

import os

from celery import Celery

import firearrow.client.integrations.kombu  # noqa: F401 (makes rocketmq:// known)

name_server = os.environ.get("NAMESRV_ADDR", "localhost:9876")
app = Celery("shop", broker=f"rocketmq://{name_server}", backend="rpc://")
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1


@app.task
def price(item: str, count: int) -> int:
    return {"book": 12, "pen": 2, "lamp": 30}[item] * count


@app.task
def total(prices: list[int]) -> int:
    return sum(prices)


@app.task
def remind(customer: str) -> str:
    return f"{customer}, your basket waits for you"
