"""`firearrow store ...`: verify, repair, dump, stat, backup."""
