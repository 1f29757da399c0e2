"""Stores as files: read without a broker, also while one writes them. Opens nothing for writing, takes no lock."""
