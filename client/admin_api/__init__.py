"""Administration: requests, records and look-ups."""
