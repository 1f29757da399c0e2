"""What every package of the client may import.

- `call_hooks`: hooks that see the calls of all producers and consumers of the process
- `compression`: compression of bodies with zlib, LZ4 or Zstandard
- `errors`: the client's errors, one hierarchy, with the codes of Java's client and the remarks of brokers
- `greenlets`: threads and locks of the system where gevent has replaced them, and how a greenlet waits
- `hooks`: hooks that users can install: their Protocols and the contexts they get
- `message`: Message, MessageQueue and SendResult, and the encoding of properties
- `names`: names of topics and groups: validity, retry and dead-letter topics, namespace prefixes
- `options`: the client's options, with Java's defaults
- `process_exit`: closes what runs when the process ends
- `reports`: events to listeners, and the record `Health`
- `service_state`: states of producers and consumers, the base class for `async with`, the wall clock
- `state_log`: one line in the log for a state, such as a slow consumer, and one for its end
- `times`: times and durations as they are typed and shown
- `unsent`: counts what could not be sent or stored, and reports it on stderr
"""
