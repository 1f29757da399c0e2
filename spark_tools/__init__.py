"""RocketMQ's log in Apache Spark: a data source and sink, and bulk jobs. Never writes a store.

- `sessions`: sessions that know the format, and reads with push-down
- `commands`, `submit`: `firearrow spark NAME` becomes a spark-submit
- `pack`: the archive that carries FireArrow to executors
"""

from firearrow.spark_tools.sessions import read_where, register, scan, session

__all__ = ["read_where", "register", "scan", "session"]
