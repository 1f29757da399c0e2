"""Messages to listeners: concurrently, in order, and what follows their results.

- `concurrent_service`: chunks of what was pulled go to handlers side by side, and finish in any order
- `consume_results`: What a handler may answer, what its answer comes to, and the face of the services that
  call handlers
- `direct`: CONSUME_MESSAGE_DIRECTLY (309): an operator has one message handled here and now, and is told
  what the handler said
- `invoke_listener`: the frame around each call of a handler: topics restored, hooks, the clock, statistics,
  the verdict
- `listeners`: a handler made awaitable, be it a plain function (run in a thread) or a coroutine function
  (awaited here)
- `orderly_service`: one handler at a time for each queue, in order, as long as the broker's lock on the
  queue is ours
- `send_back`: how a message that could not be consumed goes back to its broker, to come again or to end as
  a dead letter
- `signals`: SIGTERM and SIGINT become a call for all that run in a loop, so that each can come to a good
  end
- `subscriptions`: which topics a consumer wants, by the names that brokers know, and whose handlers they go
  to
- `worker_pool`: jobs done by at most so many tasks at a time, first come first served
"""
