"""What happens to a message before it is stored."""
