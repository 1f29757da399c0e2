"""A Spark reader of a live store folder: `python -m tests.soak.spark_reader STORE SECONDS` loads all of it
repeatedly while segments are deleted. What it reads must be what was sent; deleted messages may be missing.
"""

import json
import sys
import time

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from firearrow.spark_tools.sessions import session


def load(spark: SparkSession, store: str) -> tuple[int, int]:
    """How many messages were read, and how many are not what their offset says."""
    frame = spark.read.format("rocketmq").option("failOnDataLoss", "false").load(store)
    prefix = f.concat_ws(
        "/", "topic", f.col("queueId").cast("string"), f.col("queueOffset").cast("string"), f.lit("")
    )
    text = f.col("body").cast("string")
    row = (
        frame.where("topic LIKE 'Soak%'")
        .agg(f.count("*").alias("read"), f.count_if(~text.startswith(prefix)).alias("wrong"))
        .first()
    )
    assert row is not None
    return row["read"], row["wrong"]


def main(store: str, seconds: float) -> int:
    spark = session("longlife", master="local[1]", settings={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    began, loads, messages, wrong, failed = time.monotonic(), 0, 0, 0, ""
    try:
        while not failed and (not loads or time.monotonic() < began + seconds):
            read, unlike = load(spark, store)
            loads, messages, wrong = loads + 1, messages + read, wrong + unlike
    except PySparkException as error:
        failed = str(error)[-600:]
    spark.stop()
    print(json.dumps({"loads": loads, "messages": messages, "wrong": wrong, "failed": failed}), flush=True)
    return 0 if loads and messages and not wrong and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
