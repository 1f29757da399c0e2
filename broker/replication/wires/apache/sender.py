"""ApacheCodec: the master's end of Apache's wire: one slave of a master. Loop thread.

The wire of Apache 4 and 5: the slave sends the end of its log (i64), first as a request, then as an acknowledgement;
the master sends pieces: offset i64, size i32, bytes of the log. Size 0 is a heartbeat. Apache: HAConnection.
"""

import struct

from firearrow.broker.replication.session.slave_stream import SlaveStream

OFFSET, HEADER = struct.Struct(">q"), struct.Struct(">qi")


class ApacheCodec:
    number = 0
    header_bytes = HEADER.size
    waits_for_confirmed = False
    """This wire carries nothing of what is confirmed."""

    def received(self, stream: SlaveStream, data: bytes) -> bytes:
        whole = len(data) - len(data) % OFFSET.size
        if whole == 0:
            return data
        is_first = stream.sent < 0
        if is_first and (fault := stream.begin(OFFSET.unpack_from(data)[0])):
            stream.close(fault)
            return b""
        stream.acknowledge(OFFSET.unpack_from(data, whole - OFFSET.size)[0])
        if is_first and not stream.is_closed:
            stream.send()  # later the writes of the log set the pace, not acknowledgements
        return data[whole:]

    def header(self, at: int, size: int) -> bytes:
        return HEADER.pack(at, size)

    def piece_size(self, at: int, most: int) -> int:
        return most
