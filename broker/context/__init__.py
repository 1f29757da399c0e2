"""What the services and handlers of one broker share: its context and its tables with their files.

- `broker_context`: what most services and handlers are built from, in one frozen bundle
- `tables`: The tables of the broker, made from the options and loaded from their files
"""
