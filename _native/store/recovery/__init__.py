"""What happens when a store is opened after a crash or damage: find the end, rebuild, repair.

- `consistency`: what tells, at an open, that queues or index are not as they were left, so that they are
  built again
- `entry_repair`: Entries that lead astray, found by readers and put right from the log
- `log_salvage`: Holes in the log: found and bridged
- `recovery`: where the log really ends, and queues and index brought to agree with it
- `untrusted_tail`: the part of queues and index that was synced before a store was killed
"""
