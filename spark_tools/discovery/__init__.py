"""Installed as `pyspark_firearrow`: Spark imports every `pyspark_*` module and takes its `DefaultSource`.

Spark imports it for every user of a Python data source, so it imports only this one module.
"""

from firearrow.spark_tools.datasource.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
