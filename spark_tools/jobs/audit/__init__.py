"""The audit job: a store checked in parallel, with a report.

- `audit`: audit: checks stores in bulk: records, queues and index
- `duplicate_ids`: counts messages of one topic with the same unique key, exactly, with Spark
- `html_report`: an audit as one self-contained HTML file without scripts
- `parquet_tables`: an audit as Parquet: findings, counts, queues, lag
- `spark_executor`: runs the audit's tasks in Spark's Python workers; only results come back
- `summary`: an audit's results as rows for tables, HTML and JSON
"""
