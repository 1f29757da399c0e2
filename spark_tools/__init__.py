"""Spark tools: come with their own issue; empty today."""
