"""RocketMQ's log in Apache Spark: a data source and sink, and bulk jobs. Never writes a store."""

from firearrow.spark_tools.sessions import read_where, register, scan, session

__all__ = ["read_where", "register", "scan", "session"]
