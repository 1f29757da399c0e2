"""Timer messages: the timer wheel and log, enqueue, dequeue, recovery.

- `checkpoint`: the file `config/timercheck`, how far the timer came (store-and-broker §1.13)
- `deliver`: a message of the timer's topic on its way out: to its own topic, or, far ahead, into the timer
  once more
- `dequeue`: delivers the messages of each slot once its time has passed
- `enqueue`: takes the messages of the timer's topic, in their order, and lays each into its slot
- `log`: the files `timerlog/`, one unit for each message that waits, chained by slot (store-and-broker
  §1.13)
- `metrics`: how many messages of each topic wait in the timer, and the file `config/timermetrics`
- `rebuild`: which messages of the timer's queue still wait, told by the queue, the log and the index alone
- `recall_handle`: the handle by which a timer message can be called back, and the message that does it
- `recovery`: Recovery of the timer at start: wheel, log and check point brought together again, without a
  look at the commit log
- `rules`: which messages the timer takes, and when they fall due (HookUtils
- `service`: timer messages (TimerMessageStore), put together from intake and firing
- `slice_loop`: work in slices, one in each pass of the event loop, so that nothing else waits for long
- `timer_files`: wheel, log and check point of the timer with its two times, shared by intake and firing
- `wheel`: the file `timerwheel`, a ring of slots, each the head of a chain in the timer log (§1.13)
"""
