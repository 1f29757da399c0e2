"""What a member of a group has: its queues, their locks, how far it is in each."""
