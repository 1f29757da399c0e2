"""Listeners, connections and the dispatch of request codes.

- `acceptor`: accepts connections for the engine, as the loop's own servers do for its transports
- `connection_limits`: how many connections there may be, and who goes when they are too many or hold too
  much
- `dispatch`: request code → handler, and every way a handler may end → an answer
- `durable_replies`: requests that change a table are answered when its file is written, as by Apache's
  broker
- `server`: listeners and their connections, idle closing, drain
"""
