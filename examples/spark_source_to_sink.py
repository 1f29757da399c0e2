"""From topic to topic through Spark: a stream of messages, some SQL, and a sink.

    python examples/spark_source_to_sink.py NAME_SERVER FROM_TOPIC TO_TOPIC CHECKPOINT

Processes the messages that are there, and ends; without `availableNow` it would continue. A second run resumes at the
checkpoint. To copy without SQL use `firearrow spark copy`, which is several times as fast: it bypasses the JVM.
"""

import sys

from pyspark.sql import SparkSession

from firearrow.spark_tools import session


def paid_orders(
    spark: SparkSession, name_server: str, from_topic: str, to_topic: str, checkpoint: str
) -> None:
    """Copy messages with the tag `paid`, each with its source position; queues and order are kept."""
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
