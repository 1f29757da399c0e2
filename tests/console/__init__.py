"""The web console: its pages and actions by HTTP against a real broker, and in a real browser."""
