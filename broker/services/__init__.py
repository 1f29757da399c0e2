"""Background work: flushing, saving tables, registration, statistics, retention.

- `compaction`: keeps the newest message of each key in compaction topics
- `flusher`: syncs the log to disk in a separate thread, every flushIntervalCommitLog
- `registration`: registers the broker with name servers: the one of this process, and others over TCP
- `retention`: deletes expired log segments, then queue and index files (Apache's CleanCommitLogService and
  CleanConsumeQueueService)
- `route_lookup`: finds the brokers on which a topic has queues to read
- `stats_timer`: samples the statistics every second, every 10 s and at midnight
- `table_saver`: writes tables to their files, in the background and not more often than needed
- `thread_watch`: notices threads that ended or hang, and stops the store then
- `timers`: periodic jobs; one that fails is logged and runs again
- `topic_recovery`: deletes queues of deleted topics that a start found again, trims queues again, and creates
  topics again that have queues but are in no file
"""
