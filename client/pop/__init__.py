"""POP requests, receipt handles, acknowledgements.

- `ack`: what a consumer that pops tells the broker of a message afterwards: done with it, or hide it for
  another while
- `pop_loop`: pops each queue that the broker assigned for it, again and again, while it is ours and not too
  much is open
- `pop_prefetcher`: one consumer's pops at all brokers of its topics, so that whoever receives waits at all
  of them at once
- `pop_request`: A POP request and its answer: what a broker hands out to one consumer for a time, each
  message with its receipt
- `pop_service`: what was popped goes to handlers side by side
- `receipt_handles`: what names a popped message to the broker (property POP_CK), and the offset texts of a
  POP answer
"""
