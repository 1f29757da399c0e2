"""The audit job: a store checked in parallel, with a report.

- `audit`: audit: stores checked in bulk, record by record, with their queues and index
- `duplicate_ids`: Messages of one topic with the same unique key: exactly, by Spark, which spills to disk
  what does not fit
- `html_report`: An audit as one HTML file: nothing is loaded from elsewhere, no script, dark or light as
  the reader has it
- `parquet_tables`: An audit as Parquet: findings, counts, queues, lag
- `spark_executor`: The audit's tasks in Spark's Python workers: what they saw comes back, not what they
  read
- `summary`: What an audit saw, as rows for tables, pages and JSON: the same numbers everywhere
"""
