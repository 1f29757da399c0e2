"""Request, response and language codes, flag bits and the protocol version that we speak (see codes.pxd)."""

PROTOCOL_VERSION = VERSION
