"""What brokers and clients of RocketMQ must do alike (Python): imports nothing but `_native/wire`."""
