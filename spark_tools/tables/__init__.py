"""The log as Arrow tables, without Spark: in this process, for PyArrow, Polars, pandas and DuckDB.

- `dataset`: a topic as a PyArrow dataset, with what a query needs pushed down
- `polars_scan`: a topic as a lazy frame of Polars, and its filters as a Pushdown
- `predicates`: filters of PyArrow as a Pushdown
- `sql`: `firearrow sql`, and topics in DuckDB
- `tail`: what is stored from now on, as an async iterator of batches
"""
