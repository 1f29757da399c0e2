"""What every package of the client may import.

- `compression`: Bodies packed and opened: zlib, LZ4 frames, Zstandard frames, as the system flag of a
  message says
- `errors`: The errors of the client: one hierarchy, with the codes of Java's client and the remarks of
  brokers
- `hooks`: What users may hang in: Protocols, and the contexts that are handed to them
- `message`: Message, MessageQueue and SendResult, and the encoding of properties
- `names`: Names of topics and groups: what is allowed, retry and dead-letter topics, namespaces of the
  first kind
- `options`: The client's options, with Java's defaults
- `service_state`: States of producers and consumers, by Java's names, and what is used by `async with`
"""
