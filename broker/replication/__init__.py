"""Replication: a master and its slaves, Apache's or ours (Apache: HAService, HAClient, SlaveSynchronize).

- `auto_switch_frames`, `auto_switch_master`, `auto_switch_slave`: the wire of the log under controllers, its two ends
- `broker_identity`: the files with the number that the controllers gave this broker
- `acting_master`: what a slave does while its master is gone, with enableSlaveActingMaster
- `common_point`: up to where two logs have the same bytes, found by checksums in few questions
- `confirmed_offset`: up to where enough copies have the log, and what a send gets if there are too few
- `fencing`: a master gives its place to a slave, by request
- `controller_client`: ReplicasManager: the broker as a member under controllers
- `controller_requests`: what it asks them, and what their answers mean
- `log_times`: when a log had which end: a lag in bytes as time and messages
- `epoch_file`: EpochFileCache: which epoch of the pair wrote which bytes of the log
- `journal_stream`: the progress journal on its way from a master to a slave
- `master`: the replication port of a master: its slaves, which of them are in sync, and their status
- `master_connection`: one slave of a master: its requests and acknowledgements, the log sent to it
- `master_watch`: whether name servers have another master with a newer epoch
- `pair_frames`: frames between two brokers of ours
- `pair_handshake`: who the two are, what their logs are, and that both know the secret
- `pair_identity`: which pair a store belongs to, and which node of it this is
- `promotion`: a slave becomes the master of its pair, by request
- `rebuild`: a slave begins again with an empty log; the old one is kept
- `role`: what a store remembers of its role: promoted, or fenced
- `sync_state_set`: the brokers whose copies count under controllers
- `pre_online`: a master that starts takes over what was consumed at its slaves meanwhile
- `slave`: the parts of a slave: its client, its tables, its state
- `slave_client`: HAClient: follows the master's log over its replication port
- `slave_master`: the master as a slave sees it: its addresses, requests to it, how far it is followed
- `slave_requests`: which requests a slave refuses, and what it tells of itself
- `slave_tables`: SlaveSynchronize: copies topics, groups, offsets and timers of the master
"""
