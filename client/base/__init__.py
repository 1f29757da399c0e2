"""What every package of the client may import."""
