"""What brokers ask of a client: running info, statistics, resets.

- `inspection`: What operators ask of the consumers of an instance: reset offsets (220), tell them (221),
  tell how they run (307)
- `reset_offsets`: an operator sets a group to another place (220) while its consumers run
- `running_info`: What operators see of a consumer (`mqadmin consumerStatus`): its options, subscriptions,
  queues, speeds and stacks
- `stats`: how fast a consumer pulls and how its handlers do, by topic, over the last minute and the last
  hour
"""
