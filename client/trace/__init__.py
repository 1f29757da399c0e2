"""Message trace: records, hooks, dispatch.

- `attach_producer`: a producer's traces, for as long as it runs, if its user wants any
- `dispatcher`: what became of messages, gathered and sent to the trace topic behind the back of who
  produces and consumes
- `hooks`: What producers and consumers do to be traced: hooks that note records for a dispatcher
- `records`: Trace records: what producers and consumers note of messages on their way, as Apache's clients
  write and read it
"""
