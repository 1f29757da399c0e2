"""The Spark tools: most tests need no session; those that do share one of the whole run."""
