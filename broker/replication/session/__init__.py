"""What a master and its slaves know of each other, whatever wire they speak.

- `expected_replicas`: the other brokers of our name, connected or not, until an operator removes them
- `follower_session`: follows the master's log: appends it, and reports what is durable
- `master_api`: the master as a slave sees it: its addresses, and requests to it
- `slave_status`: how far a slave follows its master, and why not further
- `wire`: what a session needs of its wire
"""
