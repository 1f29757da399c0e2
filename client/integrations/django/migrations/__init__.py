"""Of the application's table."""
