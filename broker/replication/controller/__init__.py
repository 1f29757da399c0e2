"""The broker as a member under Apache's controllers.

- `broker_identity`: the files with the number that the controllers gave this broker
- `client`: ReplicasManager: asks the controllers who is the master
- `follower`: the slave's end of the log's wire under controllers, and the master that they name
- `frames`: the frames of the log's wire under controllers
- `requests`: what the broker asks its controllers, and what their answers mean
- `sync_state_set`: the brokers whose copies count
"""
