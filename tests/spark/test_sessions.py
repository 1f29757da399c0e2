"""A session that `session` creates, in a separate process: its settings and push-down."""

import sys
from pathlib import Path

import orjson

from firearrow.spark_tools.sessions import SETTINGS
from tests.spark.programs import run_program
from tests.spark.stores import KnownStore

PROGRAM = """
import json, sys
from firearrow.spark_tools import read_where, session

own = {"spark.ui.enabled": "false", "spark.log.level": "WARN", "spark.speculation": "true"}
spark = session("direct", master="local[1]", settings=own)
where = {"path": sys.argv[1], "topic": "Orders", "maxRecordsPerPartition": "50"}
frame = read_where(spark, "queueId = 3 AND queueOffset < 50", **where)
beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
print(json.dumps({
    "settings": dict(spark.sparkContext.getConf().getAll()),
    "collectors": [bean.getName() for bean in beans],
    "rows": frame.count(), "parts": frame.rdd.getNumPartitions(), "same": session("other") is spark,
}))
"""


def test_a_session_is_as_it_is_promised(
    spark_environment: dict[str, str], store: KnownStore, tmp_path: Path
) -> None:
    done = run_program([sys.executable, "-c", PROGRAM, str(store.root)], spark_environment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "registered data source" not in done.stderr, "Spark found the format, and it was registered again"
    result = orjson.loads(done.stdout.splitlines()[-1])
    own = {"spark.speculation": "true", "spark.master": "local[1]", "spark.app.name": "direct"}
    for name, value in {**SETTINGS, **own}.items():
        assert result["settings"][name].endswith(value), name  # Spark puts its own Java options before ours
    assert all(name.startswith("PS ") for name in result["collectors"]), result["collectors"]
    assert result["rows"] == 50
    assert result["parts"] == 1, "the filter did not reach the log"
    assert result["same"]
