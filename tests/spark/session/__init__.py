"""Tests that use the Spark session of their process. Few workers take them (tests/support/scheduling.py)."""
