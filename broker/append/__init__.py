"""From a request to a stored message: checks, delay levels, retry topics, LMQ, the progress journal.

- `appender`: stages messages in the store after Apache's hooks for delays (HookUtils)
- `broadcast_offsets`: how far each client of a broadcasting group has pulled (Apache: BroadcastOffsetManager)
- `delay_levels`: delivers the messages of SCHEDULE_TOPIC_XXXX when they are due (ScheduleMessageService)
- `due_routing`: where a message goes that is due for a queue that was chosen earlier
- `followed_log`: up to which offset of the log another broker did the work
- `lmq`: multi-dispatch: the LMQs that a message names, and its queue offsets in them
- `progress_journal`: progress that survives a kill, in memory-mapped files next to Apache's
- `retry_routing`: sends a message that a group could not consume to the retry topic or the dead-letter queue
- `send_checks`: the fields of send requests, and Apache's checks of which topics clients may send to
"""
