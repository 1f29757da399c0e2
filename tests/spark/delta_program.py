"""Delta Lake in Spark reads a table of `firearrow export`, and writes a batch that is repeated once:
`python delta_program.py TABLE JARS`."""

import json
import sys

from pyspark.sql import SparkSession

table, jars = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
)
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
rows = spark.read.format("delta").load(table)
history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
found = {
    "rows": rows.count(),
    "keys": rows.select("keys").distinct().count(),
    "offsets": json.loads(history[0].userMetadata)["offsets"],
}
for _ in range(2):
    once = rows.limit(5).write.format("delta").mode("append")
    once.option("txnAppId", "orders").option("txnVersion", 1).save(table)
print(json.dumps(found | {"then": spark.read.format("delta").load(table).count()}))
spark.sql(f"OPTIMIZE delta.`{table}`")
spark.stop()
