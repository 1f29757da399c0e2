"""Policy of the broker and the name server: plain Python, no pointers.

- `__main__`: `python -m firearrow.broker` is `firearrow broker`
- `cli`: The command line: arguments become Options and start an App
"""
