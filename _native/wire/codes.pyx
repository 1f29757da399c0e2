"""Request, response and language codes, flag bits and the protocol version (see codes.pxd)."""

PROTOCOL_VERSION = VERSION  # type: int
