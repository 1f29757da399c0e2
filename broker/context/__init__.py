"""What the services and handlers of one broker share: its context and its tables with their files."""
