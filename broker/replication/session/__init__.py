"""What a master and its slaves know of each other, whatever wire they speak.

- `expected_replicas`: the other brokers of our name, connected or not, until an operator removes them
- `follower_session`: follows the master's log: appends it, and reports what is durable
- `master_api`: the master as a slave sees it: its addresses, and requests to it
- `replica_registry`: the slaves of a master: connected, refused and expected ones
- `slave_status`: how far a slave follows its master, and why not further
- `slave_stream`: a slave's socket at its master: the log sent to it in pieces
- `timeout_sync`: which slaves count as copies, by slaveTimeout, and up to where the log is confirmed
- `wire`: what session and registry need of a wire: its two ends
"""
