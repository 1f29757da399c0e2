"""Numbers for the scrape of the metrics that are too many for Python: the lags of all groups.

- `lag_table`: how far each group is behind in each topic and queue and what it got, and that as lines of text
"""
