"""The broker and the name server: policy in plain Python; the store and the wire are in `_native`.

- `__main__`: `python -m firearrow.broker`, the same as `firearrow broker`
- `cli`: the command line: turns arguments into Options and starts an App
"""
