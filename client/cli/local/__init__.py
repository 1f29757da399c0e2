"""`firearrow context`, `completion` and `tls`: what is on this machine.

- `completion`: scripts for shells
- `context`: name servers and keys by name
- `tls`: an authority and certificates for development
"""
