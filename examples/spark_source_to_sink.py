"""The ordinary way through Spark: a stream of messages, some SQL, and messages of another topic.

    python examples/spark_source_to_sink.py NAME_SERVER FROM_TOPIC TO_TOPIC CHECKPOINT

Takes what is there and ends; without `availableNow` it would go on. Run again it goes on where it was. For copying
without SQL there is `firearrow spark copy`, which keeps messages out of the JVM and is several times as fast.
"""

import sys

from pyspark.sql import SparkSession

from firearrow.spark_tools.sessions import session


def paid_orders(
    spark: SparkSession, name_server: str, from_topic: str, to_topic: str, checkpoint: str
) -> None:
    """Messages with the tag `paid` go to the other topic, each with where it was read; queues and order stay."""
    source = spark.readStream.format("rocketmq").options(
        nameServer=name_server, topic=from_topic, startingOffsets="earliest"
    )
    paid = source.load().where("tags = 'paid'")
    sink = paid.writeStream.format("rocketmq").options(
        nameServer=name_server, topic=to_topic, provenance="paid-orders", checkpointLocation=checkpoint
    )
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    paid_orders(session("paid orders"), *sys.argv[1:5])
