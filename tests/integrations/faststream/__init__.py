"""FastStream on RocketMQ, in memory and against real brokers; `--against apache` runs all against Apache's."""
