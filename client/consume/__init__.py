"""Passes messages to listeners, concurrently or in order, and handles their results.

- `concurrent_service`: ConcurrentService, which passes chunks of pulled messages to handlers concurrently
- `consume_results`: what a handler may return, the verdict it leads to, and the Protocols of the services
- `direct`: CONSUME_MESSAGE_DIRECTLY (309): an operator has one message consumed at once and gets the result
- `invoke_listener`: ListenerInvoker, which calls a handler with hooks, clock and statistics, and judges the
  result
- `listeners`: Listeners, which make a handler awaitable: a function runs in a thread, a coroutine function
  in the loop
- `message_loops`: MessageLoops, the messages of a push consumer for `async for`
- `orderly_service`: OrderlyService, which consumes each locked queue in order, one handler at a time
- `send_back`: SendBack, which returns a failed message to its broker, for redelivery or as a dead letter
- `signals`: SIGTERM and SIGINT as calls to consumers, so that each can stop cleanly
- `subscriptions`: Subscriptions, the topics of a consumer and their handlers
- `worker_pool`: WorkerPool, which runs jobs in at most N tasks at a time, first come first served
"""
