"""A shop on FastStream: orders are checked in order for each customer, prices are asked for, invoices are sent later.

Start a broker, then run it with FastStream's command; with `--reload` it starts again when this file changes, with
`--workers 2` in two processes:

    firearrow broker &
    faststream run shop:app
"""

from faststream import AckPolicy, FastStream, Logger
from faststream.exceptions import RejectMessage
from pydantic import BaseModel, PositiveInt

from firearrow.client import ConsumeFromWhere
from firearrow.client.integrations.faststream import RocketMQBroker, RocketMQMessage, RocketMQResponse

broker = RocketMQBroker(group="shop")  # the name server: NAMESRV_ADDR, or localhost:9876
app = FastStream(broker)
invoices = broker.publisher("shop-invoices", tags="invoice")
PRICES = {"book": 20, "lamp": 35}
done: list[str] = []


class Order(BaseModel):
    customer: str
    product: str
    count: PositiveInt = 1


@broker.subscriber("shop-prices", max_workers=10)
async def price(product: str) -> int:
    """Answers requests, of this program or of one in Java or Go."""
    return PRICES[product]


@broker.subscriber("shop-orders", orderly=True, max_workers=8, from_where=ConsumeFromWhere.FIRST_OFFSET)
@invoices
async def order(order: Order, message: RocketMQMessage) -> RocketMQResponse:
    """A customer's orders come one after the other. An error redelivers the order; an unknown product never will do."""
    if order.product not in PRICES:
        raise RejectMessage  # to the dead letters of the group
    reply = await broker.request(order.product, "shop-prices", timeout=10)
    total = order.count * int(await reply.decode())
    return RocketMQResponse({"customer": order.customer, "total": total}, keys=[order.customer], delay_s=1)


@broker.subscriber("shop-invoices", batch=True, max_records=100, ack_policy=AckPolicy.ACK)
async def send_invoices(invoices: list[dict[str, object]], logger: Logger) -> None:
    """All invoices that wait, up to 100."""
    for invoice in invoices:
        logger.info("invoice sent: %s", invoice)
        done.append(f"{invoice['customer']} pays {invoice['total']}")
    if len(done) >= 3:
        print(sorted(done), flush=True)
        app.exit()


@app.after_startup
async def buy() -> None:
    """Some customers, so that there is something to see."""
    for customer, product, count in (
        ("ann", "book", 1),
        ("bob", "lamp", 2),
        ("ann", "unicorn", 1),
        ("ann", "book", 3),
    ):
        bought = Order(customer=customer, product=product, count=count)
        await broker.publish(bought, "shop-orders", sharding_key=customer, keys=[customer])
