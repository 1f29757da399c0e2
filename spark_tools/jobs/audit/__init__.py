"""The audit job: a store checked in parallel, with a report."""
