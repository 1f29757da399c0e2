"""Push, pull and POP consumers, put together.

- `pop_consumer`: takes messages from brokers one batch at a time, and says of each message itself what came
  of it
- `pull_consumer`: a member of a group that asks for its messages itself, and says how far it is (Java's
  lite pull)
- `pull_consumer_runtime`: what a running pull consumer is made of, put together: offsets, pull tasks,
  rebalance
- `push_consumer`: messages of a group's topics, brought to handlers: plain functions (in threads) or
  coroutine functions
- `push_consumer_runtime`: what a running push consumer is made of, put together: offsets, handlers, pulls,
  rebalance, locks
- `push_settings`: what a user has said of a push consumer, before it runs and while it does
- `retry_producer`: sends a consumer's messages to its own retry topic when the broker could not be asked to
  do that itself
- `trace`: a consumer's traces, if its user wants any
"""
