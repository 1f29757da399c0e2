"""Submission: what the process that submits a job passes to the job."""

MASTER = "FIREARROW_SPARK_MASTER"
"""Environment variable of a submitted job: Spark's master."""
