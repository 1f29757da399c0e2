"""The way to brokers and name servers that all objects of one client id share: sockets, routes, heartbeats, timers."""
