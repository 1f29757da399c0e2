"""docs/SPARK.md's recipe for Avro runs as it is printed, with Spark's package from Maven Central."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.maven import class_path
from tests.interop.toolchain import BUILT, Unavailable, need

pytestmark = pytest.mark.interop

AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
GUIDE = Path(__file__).resolve().parents[2] / "docs/SPARK.md"
PROGRAM = """
import sys
from firearrow import spark_tools
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
settings = {"spark.jars": sys.argv[1], "spark.master": "local[1]"}
spark = spark_tools.session("formats", settings=settings)
orders = spark.range(3).select(F.col("id").cast("string").alias("uniqKey"), to_avro(F.struct("id")).alias("body"))
exec(sys.argv[2])
print(sorted((row.uniqKey, row.order.id) for row in parsed.collect()))
"""


def jar() -> str:
    try:
        jars = class_path(BUILT / "spark-avro", AVRO).split(":")
    except RuntimeError as error:
        raise Unavailable(str(error)) from None
    return next(path for path in jars if "/spark-avro" in path)


def test_avro_bodies_are_parsed(spark_environment: dict[str, str], tmp_path: Path) -> None:
    need(jar)
    (block,) = re.findall(r"```py\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, jar(), block],
        cwd=tmp_path,
        env=os.environ | spark_environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[('0', 0), ('1', 1), ('2', 2)]"
