"""Apache Spark for RocketMQ logs: a data source, a sink and bulk jobs. Never writes to a store."""

from firearrow.spark_tools.sessions import read_where, register, scan, session

__all__ = ["read_where", "register", "scan", "session"]
