"""The way of a message into the store: checks, delay levels, retry topics, LMQ, the progress journal.

- `appender`: the way of a message into the store, through Apache's hooks for delays (HookUtils)
- `broadcast_offsets`: how far each client of a broadcasting group pulls, so that a client that changes
  between a proxy and the broker goes on where it was
- `delay_levels`: delivers the messages of SCHEDULE_TOPIC_XXXX when they are due (ScheduleMessageService)
- `lmq`: the light queues (%LMQ%…) that a message names, and its places in them: multi-dispatch
- `progress_journal`: progress that survives a kill, in files mapped into memory beside Apache's own
  (`journal/<run>.<number>`)
- `retry_routing`: where a message that a group could not consume goes next, retry topic or dead letters
- `send_checks`: the fields of a request that sends, and Apache's checks of who may send what where
"""
