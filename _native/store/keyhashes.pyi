class KeyHashes:
    """Hashes of staged records' keys; nothing of it is for Python."""
