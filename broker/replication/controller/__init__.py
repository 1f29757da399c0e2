"""The broker as a member under Apache's controllers.

- `broker_identity`: the files with the number that the controllers gave this broker
- `client`: ReplicasManager: asks the controllers who is the master
- `controlled_sync`: which slaves count as copies, by the sync state set
- `follower`: the slave's end of the log's wire under controllers, and the master that they name
- `frames`: the frames of the log's wire under controllers
- `requests`: what the broker asks its controllers, and what their answers mean
- `sender`: the master's end of that wire
- `sync_state_set`: the brokers whose copies count, as the controllers know them
"""
