"""LITE topics: very many small queues in one topic, each with the clients that subscribe to it.

A message of a topic of type LITE names a lite topic (`__LITE_TOPIC`). It is stored in its topic, and has an entry in
the LMQ of the lite topic (`%LMQ%$TOPIC$LITE_TOPIC`), which its first message creates.

- `acks`: acknowledgements of messages of lite topics (200051 and 200053 with a `liteTopic`)
- `subscriptions`: which client of which group subscribes to which lite topic
- `events`: which lite topics may have messages for a client, and the pops that wait for one
- `pops`: takes messages of a client's lite topics
- `service`: subscriptions, offsets and events together: what a request changes in all of them
- `expiry`: deletes lite topics that have got no message for a while
"""
