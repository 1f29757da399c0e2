"""`firearrow doctor`: every trouble that it looks for is made, and found; a healthy broker has none."""
