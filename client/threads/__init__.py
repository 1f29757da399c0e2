"""The client without `await`: one loop thread and façades.

- `facade`: blocking methods for an object of the event loop
- `handover`: messages from any thread to a producer's loop, many with one wake-up
- `loop_thread`: the event loop thread that all blocking objects of a process share
"""
