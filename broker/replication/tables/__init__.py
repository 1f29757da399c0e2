"""A master's tables at a slave.

- `slave_tables`: SlaveSynchronize: copies topics, groups, offsets and timers of the master
"""
