"""A program for spark-submit: executors read a table and replay it. Its last output, JSON, is what they read.

clustered.py STORE NAME_SERVER CHECKPOINT
"""

import json
import sys

from firearrow.spark_tools.jobs.replay import cli
from firearrow.spark_tools.sessions import session


def main(store: str, name_server: str, checkpoint: str) -> None:
    spark = session("clustered")
    log = spark.read.format("rocketmq").options(topic="Orders", maxRecordsPerPartition="50").load(store)
    rows = log.select("queueId", "queueOffset", "uniqKey").collect()
    words = ["--path", store, "--topics", "Orders", "--target", name_server, "--create-topics", "--verify"]
    code = cli([*words, "--checkpoint", checkpoint, "--quiet"])
    print(json.dumps({"rows": [list(row) for row in rows], "code": code or 0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
