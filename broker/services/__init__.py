"""What runs beside the requests: turns, flushing, holds, saving, registering."""
