"""Which ranges of which queues are read, and in what parts: options, offsets, splitting, limits. Knows no Spark."""
