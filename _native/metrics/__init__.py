"""Numbers that are too many for Python: the lags of all groups, for the scrape of the metrics and for lists.

- `group_sums`: a group's progress in its topics, added up
- `lag_table`: how far each group is behind in each topic and queue and what it got, and that as lines of text
"""
