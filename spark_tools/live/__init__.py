"""Brokers read and written over the wire.

- `broker_source`: the brokers behind a Target as an origin of messages
- `client_link`: what all live readers and senders of one process share for one Target: an Admin in the
  client's loop thread
- `cluster`: a cluster as options name it: its name servers, who asks, how it is spoken to
- `connection`: one socket to one broker for large frames: parts leave without being joined, answers are
  kept until asked for
- `pull_pipeline`: one queue's records as brokers answer with them, several pulls on the way where offsets
  can be foretold
- `range_reader`: the answers of one range's pulls put together, and what is missing in it told by its
  offsets and the reason
- `reader`: topics, bounds and records of live brokers
- `send_pipeline`: requests that send to one broker, until each is stored or refused
- `sender`: batches and single messages to queues of a cluster
"""
