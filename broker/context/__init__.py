"""What the services and handlers of one broker share: its context and its tables with their files.

- `broker_context`: BrokerContext and Tables, which most services and handlers are built from
- `tables`: creates the broker's tables from the options and loads them from their files
"""
