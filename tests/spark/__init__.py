"""The Spark tools. The tests in `session` share one Spark session per worker."""
