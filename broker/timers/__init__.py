"""Timer messages: the timer wheel and log, enqueue, dequeue, recovery.

- `checkpoint`: the file `config/timercheck`, the progress of the timer (store-and-broker §1.13)
- `deliver`: stages a message that leaves the timer's topic: to its own topic or, if due far ahead, into the
  timer again
- `dequeue`: delivers the messages of each slot once its time has passed (TimerDequeueGetService and its
  followers)
- `enqueue`: reads the timer's topic in order and puts each message into its slot (TimerEnqueueGetService)
- `log`: the files `timerlog/`, one timer record for each pending message, chained by slot (store-and-broker
  §1.13)
- `metrics`: how many messages of each topic are pending in the timer, and the file `config/timermetrics`
- `rebuild`: finds pending messages from the timer's queue, the commit log and the key index alone
- `recall_handle`: the handle by which a client recalls a timer message, and the message that does it
- `recovery`: reconciles wheel, log and checkpoint at start, without reading the commit log, and checks them
- `rules`: which messages go to the timer, and when they are due (HookUtils; store-and-broker §6.2)
- `service`: the timer of a broker (TimerMessageStore): opens its files, starts enqueue and dequeue, saves
  progress
- `slice_loop`: work in slices, one per pass of the event loop, so that nothing else waits for long
- `timer_files`: wheel, log and checkpoint of the timer and its two times, shared by enqueue and dequeue
- `wheel`: the file `timerwheel`, a ring of slots, each the head of a chain in the timer log (store-and-broker
  §1.13)
"""
