"""Spark's data source `rocketmq`: table and stream reads, table and stream writes."""
