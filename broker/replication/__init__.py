"""Replication: a master and its slaves, Apache's or ours (Apache: HAService, HAClient, SlaveSynchronize).

The packages are floors: each imports from those above it in this list only (`tests/meta/test_layout.py`).

- `log`: what a log is to others: its epochs, its identity, up to where it is confirmed and one with another log
- `session`: the master as a slave sees it, and the slaves that a master expects
- `tables`: a master's tables, which a slave asks for
- `wires`: how the log travels: Apache's wire, and FireArrow's
- `failover`: who is the master, and what happens when that changes
- `controller`: the broker as a member under Apache's controllers

and what is composed of them:

- `auto_switch_master`: the master's end of the wire under controllers
- `master`: the replication port of a master: its slaves, which of them are in sync, and their status
- `slave`: the parts of a slave: its session, its tables, its state
"""
