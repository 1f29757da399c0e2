"""Connections, routes, name servers and heartbeats: what all objects of one client id share.

- `channel`: Channel, one connection to one broker or name server, and the signatures of requests
- `channels`: Channels, the connections of a client instance, one for each address; SOCKS5 proxies
- `client_id`: the client id that brokers know a client by, and the local address in it
- `client_instance`: ClientInstance, the connections, routes, heartbeats and timers that all users of one
  client id share
- `client_roles`: Protocols of the producers and consumers that share a client instance
- `connection_states`: ConnectionStates, which brokers and name servers are not reached
- `heartbeat`: Heartbeats, which report the groups and subscriptions of this client to every known broker
- `name_servers`: NameServers, which call one name server until it fails, then the next
- `queue_offsets`: QueueOffsets, which asks the master of a queue for its first offset, its next offset and
  the offset at a time
- `route_retry`: RouteRetry, which requests missing routes again, soon at first and then less often
- `routes`: RouteTable, the queues of topics and the addresses of brokers
- `service`: Service, the life cycle of a producer or consumer by Java's ServiceState
- `tls`: ClientTls, the contexts of TLS connections, made again after the files have changed
"""
