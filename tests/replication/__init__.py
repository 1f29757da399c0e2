"""Replication: slaves and masters, ours and Apache's."""
