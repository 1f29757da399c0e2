"""Connections, routes, name servers and heartbeats: what all objects of one client id share.

- `channel`: one socket to one broker or name server
- `channels`: the sockets of an instance, one for each address, opened when first wanted
- `client_id`: Who we are: our address, the client id that brokers know us by
- `client_instance`: what producers and consumers of one client id share: sockets, routes, heartbeats,
  timers
- `client_roles`: What an instance knows of the producers and consumers that share it
- `heartbeat`: who we are and what we want, told to every known broker
- `name_servers`: which name server is asked: one while it answers, then the next
- `queue_offsets`: what the master of a queue's broker says about it: its first and next offset, and where a
  time lies
- `route_retry`: topics that are wanted and have no route yet are asked for again soon, then ever more
  seldom
- `routes`: where topics live, and the addresses of brokers
- `service`: the life of a producer or consumer by Java's ServiceState: made, started, running, closed
"""
