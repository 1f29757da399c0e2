"""What happens to a message on its way into the store."""
