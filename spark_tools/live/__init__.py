"""Reads from and sends to live brokers over the wire.

- `broker_source`: BrokerSource: the brokers of a Cluster as a source of messages
- `client_link`: SharedAdmin: one Admin for all readers and senders of a process that use the same Cluster
- `cluster`: Cluster: name servers, credentials and connection settings, read from options
- `connection`: BrokerSocket: one connection to one broker for large frames
- `pull_pipeline`: PullPipeline: pulls one queue's records, several requests at a time
- `range_reader`: RangeReader: combines the pull responses for one range and reports missing offsets
- `reader`: LiveReader: topics, bounds and records of live brokers
- `send_pipeline`: SendPipeline: send requests to one broker, retried until stored or refused
- `sender`: Sender: sends batches and single messages to queues of a cluster
"""
