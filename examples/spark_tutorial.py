"""The log as a Spark table, and bulk jobs over it: a tour of the Spark tools, with its own broker.

    python examples/spark_tutorial.py [MESSAGES]          default: 200,000

Sends orders, queries the log in SQL, replays an hour of it to another topic, sends dead letters again, and exports.
Each job runs as `firearrow spark …` runs it from a shell; the command line is printed. Needs Java 17 and
`pip install 'firearrow[spark]'`.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from firearrow import spark_tools
from firearrow.client import (
    ConsumeFromWhere,
    DeadLetter,
    LocalBroker,
    PushConsumerOptions,
    ReceivedMessage,
    blocking,
)

ORDERS, REPLAYED, QUEUES = "tutorial-orders", "tutorial-replayed", 4
GROUP = "tutorial-shop"
BAD_ORDERS = 12


def make_orders(
    spark: SparkSession, name_server: str, first: int, count: int, tag: str | None = None
) -> None:
    """Each row becomes a message: one column is the body, others are tags, keys, properties and queue."""
    tags = f"'{tag}'" if tag else "case id % 3 when 0 then 'new' when 1 then 'paid' else 'sent' end"
    orders = spark.range(first, first + count).selectExpr(
        "to_json(struct(id, 'book' as article)) as body",
        f"{tags} as tags",
        "array(concat('order-', id), concat('customer-', id % 1000)) as keys",
        "map('price', cast(id % 90 + 10 as string)) as properties",
        f"cast(id % {QUEUES} as int) as queueId",
    )
    orders.write.format("rocketmq").mode("append").options(nameServer=name_server, topic=ORDERS).save()


def log_of(spark: SparkSession, topic: str, **where: str) -> DataFrame:
    """The log as a table: from files (`path`), also of a running broker, or from brokers (`nameServer`)."""
    return spark.read.format("rocketmq").options(topic=topic, **where).load()


def query(spark: SparkSession, store: Path) -> None:
    """SQL over the store's files, without the broker."""
    log_of(spark, ORDERS, path=str(store)).createOrReplaceTempView("orders")
    spark.sql(
        "select tags, count(*) as orders, sum(cast(properties['price'] as int)) as worth, max(storeTimestamp) as last "
        "from orders group by tags order by tags"
    ).show(truncate=False)
    spark.sql(
        "select queueId, queueOffset, tags, get_json_object(cast(body as string), '$.id') as id "
        "from orders where keys like 'order-7 %'"
    ).show(truncate=False)


def refuse_bad_orders(name_server: str, count: int) -> None:
    """A consumer that cannot handle some orders: they become dead letters of its group."""
    seen: set[str] = set()
    all_seen = threading.Event()
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    shop = blocking.PushConsumer(GROUP, name_server=name_server, options=options)

    @shop.subscribe(ORDERS, tags="bad")
    def handle(messages: Sequence[ReceivedMessage]) -> DeadLetter:
        seen.update(message.message_id for message in messages)
        if len(seen) == count:
            all_seen.set()
        return DeadLetter()

    with shop:
        if not all_seen.wait(60):
            raise SystemExit(f"the shop received {len(seen)} of {count} bad orders")


def run(job: str, *arguments: object) -> None:
    print(f"\n$ firearrow spark {job} {' '.join(map(str, arguments))}")
    code = spark_tools.run_job(job, *arguments)
    if code:
        raise SystemExit(f"{job} ended with {code}")


def tour(spark: SparkSession, broker: LocalBroker, folder: Path, count: int) -> None:
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.create_topic(ORDERS, QUEUES)
    began = time.monotonic()
    make_orders(spark, broker.name_server, 0, count // 2)
    noon = datetime.fromtimestamp((time.time_ns() // 1_000_000 + 1) / 1000, UTC)
    make_orders(spark, broker.name_server, count // 2, count - count // 2)
    print(f"{count:,} orders sent in {time.monotonic() - began:.1f} s")

    query(spark, broker.store)

    checkpoint = folder / "checkpoints"
    hour = ("--from", noon.isoformat(), "--until", (noon + timedelta(hours=1)).isoformat())
    run(
        "replay", "--path", broker.store, "--topics", ORDERS, *hour, "--target", broker.name_server,
        "--to-topic", REPLAYED, "--create-topics", "--verify", "--checkpoint", checkpoint / "replay",
    )  # fmt: skip
    print("replayed:", log_of(spark, REPLAYED, nameServer=broker.name_server).count())

    make_orders(spark, broker.name_server, count, BAD_ORDERS, tag="bad")
    refuse_bad_orders(broker.name_server, BAD_ORDERS)
    run(
        "redrive", "--path", broker.store, "--group", GROUP, "--target", broker.name_server,
        "--checkpoint", checkpoint / "redrive",
    )  # fmt: skip
    bad = log_of(spark, ORDERS, path=str(broker.store)).where("tags = 'bad'")
    print("bad orders, sent twice:", bad.count())

    run("export", "--path", broker.store, "--topics", f"{ORDERS},{REPLAYED}", "--to", folder / "parquet")
    exported = spark.read.parquet(str(folder / "parquet"))
    exported.groupBy("topic").count().orderBy("topic").show(truncate=False)
    print("exported:", exported.count())


def main(count: int) -> None:
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    spark = spark_tools.session("tutorial", master="local[2]", settings=settings)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalBroker(Path(folder) / "broker-a", settings={"brokerName": "broker-a"}) as broker,
    ):
        tour(spark, broker, Path(folder), count)
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
