"""Composition: builds, starts and stops the broker and the name server.

- `app`: the composition root
- `fast_path`: the composition of the fast lane
- `message_services`: the composition of `life`, what happens to a message beyond a plain send
- `name_server`: the tables and handlers of one name server, put together, and its scan for silent brokers
- `name_server_app`: the process that is a name server and nothing else (`firearrow namesrv`)
- `pop_services`: the composition of POP, a part of `living`: what is taken, what comes back, who waits
- `store`: store and journal opened from options, and the store closed, with sentences for people
- `timer_services`: the composition of timer messages, a part of `living`: the service, its files, who asks
  of it
"""
