"""Recovery when a store is opened after a crash or damage: find the end, repair, rebuild.

- `consistency`: checks whether queues or index have changed since they were closed
- `entry_repair`: repairs wrong queue entries that readers find
- `log_salvage`: finds gaps in the log and fills them
- `recovery`: finds the end of the log and makes queues and index agree with it
- `timer_log`: checks the units of a timer log, and finds its end
- `untrusted_tail`: truncates queues and index to what was synced before a crash
"""
