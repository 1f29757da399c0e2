"""Background work: flushing, saving tables, registration, statistics, retention.

- `flusher`: brings the log to the disk in a thread of its own, every flushIntervalCommitLog
- `registration`: makes our broker known, to the name server of this process and to others over TCP
- `retention`: the log's oldest segments go, queues and index follow (Apache's CleanCommitLogService and
  CleanConsumeQueueService)
- `route_lookup`: on which brokers a topic has queues to read, as its name servers say
- `stats_timer`: feeds the statistics every second, every 10 s and at midnight
- `table_saver`: brings tables to their files, in the background and not more often than needed
- `timers`: small jobs, each repeated after its number of seconds, also after it failed (logged)
- `topic_recovery`: topics that have queues and stand in no file are made again
"""
