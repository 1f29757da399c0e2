"""The way to brokers and name servers that all objects of one client id share: sockets, routes, heartbeats, timers.

- `service`: the life of a producer or consumer by Java's ServiceState: made, started, running, closed
"""
