"""The rest is used by `cimport` only: see frame.pxd."""

PROXY_HEADER_REFUSED: str
