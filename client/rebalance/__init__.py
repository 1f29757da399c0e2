"""What a group member owns: queues, locks, process queues, offsets."""
