"""Quotas: how much users, topics, groups and addresses may use, and what becomes of requests over it.

- `quota_check`: QuotaCheck: delays and refuses requests, counts what was used, and the connections of users
- `quota_table`: the quotas that operators set, and their file
"""
