"""Timer messages: the timer wheel and log, enqueue, dequeue, recovery."""
