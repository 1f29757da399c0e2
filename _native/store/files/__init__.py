"""The store's files: mapped segments, preallocation, syncing, errors of the disk."""
