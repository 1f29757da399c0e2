"""Tests of the native store: its promises, seen from Python."""
