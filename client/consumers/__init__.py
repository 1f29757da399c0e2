"""Push, pull and POP consumers, composed of the other packages.

- `pop_consumer`: the POP consumer's public API: receive a batch, acknowledge each message
- `pull_consumer`: the pull consumer's public API: poll, commit, seek (Java's lite pull)
- `pull_consumer_runtime`: the parts of a running pull consumer: offsets, prefetching, rebalance
- `push_consumer`: the push consumer's public API: subscribe handlers, start, drain, close
- `push_consumer_runtime`: the parts of a running push consumer: offsets, handlers, pulls, rebalance, locks
- `push_settings`: the configuration of a push consumer
- `retry_producer`: sends a message to the retry topic when the broker did not take it back
- `trace`: the message trace of a consumer, if it is enabled
"""
