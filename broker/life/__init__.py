"""What happens to a message beyond a plain send: delays, timers, retries, transactions, pops. Loop thread."""
