"""Connections, routes, name servers and heartbeats: what all objects of one client id share."""
