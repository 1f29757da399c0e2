"""Installed as `pyspark_firearrow`: Spark imports every `pyspark_*` module and takes its `DefaultSource`.

Imported by every Spark user's first Python source, wanted or not: so it imports nothing of ours but this one module.
"""

from firearrow.spark_tools.datasource.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
