"""RocketMQ's log in Apache Spark: a data source and sink, and bulk jobs. Never writes a store."""
