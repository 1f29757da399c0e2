"""Replication: a master and its slaves, Apache's or ours (Apache: HAService, HAClient, SlaveSynchronize).

The packages are floors: each imports from those above it in this list only (`tests/meta/test_layout.py`).

- `log`: what a log is to others: its epochs, its identity, up to where it is confirmed and one with another log
- `session`: a slave's session with its master, and a master's registry of its slaves, whatever wire they speak
- `tables`: a master's tables, which a slave asks for
- `wires`: how the log travels: Apache's wire, and FireArrow's
- `failover`: who is the master, and what happens when that changes
- `controller`: the broker as a member under Apache's controllers

and what is composed of them:

- `master`: the replication port of a master: its slaves, the wires that they speak, and what their copies confirm
- `slave`: the parts of a slave: its session, its tables, its state
"""
