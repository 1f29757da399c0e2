"""The wire between two FireArrow brokers.

- `agreement`: what the two report of their logs, and up to where these are one
- `follower`: the slave's end of a connection
- `frames`: the frames, encoded and decoded
- `handshake`: who the two are, what their logs are, and that both know the secret
- `journal_stream`: the progress journal on its way from a master to a slave
- `sender`: the master's end of a connection
- `shipment`: what a master does for slaves of this wire: ships journal and tables
- `tables`: the tables that a master pushes, and how a slave takes them over
"""
