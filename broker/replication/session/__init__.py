"""What a master and its slaves know of each other, whatever wire they speak.

- `expected_replicas`: the other brokers of our name, connected or not, until an operator removes them
- `master_api`: the master as a slave sees it: its addresses, requests to it, how far it is followed
"""
