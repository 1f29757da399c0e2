"""Who of the brokers of a name is the master, and what happens when that changes.

- `acting_master`: what a slave does while its master is away, with enableSlaveActingMaster
- `fencing`: a master gives its place to a slave, by request
- `isolated_start`: a master that starts takes over what was consumed at its slaves meanwhile
- `master_role`: what a slave remembers of its master: its role, and the slaves that it expects
- `master_watch`: whether name servers have another master with a newer epoch
- `member_group`: the brokers of our own name, and heartbeats to name servers, with enableSlaveActingMaster
- `promotion`: a slave becomes the master, by request
- `rebuild`: a slave starts over with an empty log; the old one is kept
- `role`: what a store remembers of its role: promoted, or fenced
- `slave_requests`: which requests a slave refuses, and what it reports of itself
"""
