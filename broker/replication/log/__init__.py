"""What a log is to other brokers.

- `common_point`: up to where two logs have the same bytes, found by checksums in few questions
- `confirmed_offset`: up to where enough copies have the log, and what a send gets if there are too few
- `epoch_file`: EpochFileCache: which epoch wrote which bytes of the log
- `pair_identity`: which pair a store belongs to, which node of it this is, and its role
- `record_sums`: checksums of the records that slaves compare with theirs, found in short turns of the loop
- `replica_lag`: when a log had which end: a lag in bytes as time and messages
"""
