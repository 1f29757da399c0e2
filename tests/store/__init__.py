"""Tests of the native store: its promises, tested from Python."""
