"""Composition: builds, starts and stops the broker and the name server.

- `app`: one start of the broker: builds its parts in order, runs, and stops them in the opposite one
- `commands`: what `firearrow broker` and `firearrow namesrv` do with their arguments: log, options, check or run
- `console`: the web console as a child process, which runs only while it is visited
- `controller_mode`: the connections to controllers, and one start of the broker under them
- `fast_path`: builds the fast path and sets its plain topics
- `foundation`: Foundation: store, journal, flusher, saver, server, write batch
- `grpc_services`: the clients of gRPC, loaded when the first one connects
- `lite_services`: builds what serves LITE topics
- `message_services`: builds what handles messages beyond a plain send: delays, timers, transactions, POP
- `metrics_services`: builds metrics, status, history and the HTTP listener
- `name_server`: the tables and handlers of one name server, and its scan for silent brokers
- `name_server_app`: the process of `firearrow namesrv`, a name server alone
- `role_services`: builds what decides which broker of a name is the master
- `pop_services`: builds the services and handlers of POP
- `ports`: Ports: where the broker and its name server listen, and what answers there
- `replication`: Replication: Standalone, Replicated or Controlled
- `services`: Services: pulls, message services, fast path, retention; runs and stops them
- `state`: State: tables, users and rules, quotas, statistics, the name server
- `store`: opens store and journal from the options and closes the store, with errors for users
- `timer_services`: builds the service of timer messages, its files and its handlers
"""
