"""POP requests, receipt handles, acknowledgements.

- `ack`: AckClient, which acknowledges popped messages or changes their invisible times
- `auto_renewal`: AutoRenewal, which keeps received messages invisible to other members until they are settled
- `pop_loop`: PopLoop, which pops each assigned queue repeatedly, and PopClient, which sends a POP request
- `pop_prefetcher`: PopPrefetcher, the pops of one consumer at all brokers of its topics
- `pop_request`: a POP request and its answer, whose messages get receipt handles
- `pop_service`: PopService, which passes popped messages to handlers, then acknowledges them or hides them
  until a retry
- `receipt_handles`: ReceiptHandle, which identifies a popped message to the broker, and the offset strings
  of a POP answer
- `start_after_last`: StartAfterLast, which lets a group that pops start after the last message of a topic
"""
