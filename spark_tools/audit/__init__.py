"""Stores checked in bulk: what is needed without a session. The job is firearrow.spark_tools.jobs.audit."""
