"""The client without `await`: one loop thread and façades.

- `facade`: an object of the event loop, used from other threads: each verb is done in the loop and waited
  for
- `handover`: messages of any thread reach a producer's loop, many by one wake-up
- `loop_thread`: one event loop in a thread of its own, which all blocking objects of a process share
"""
