"""Split a stream of bytes into the frames of RocketMQ's remoting protocol."""

from firearrow._native.wire.command import RemotingCommand


def split_frames(data: bytes) -> tuple[list[RemotingCommand], bytes]:
    """The commands of all whole frames, in order, and the bytes after them."""
    commands = []
    while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
        commands.append(RemotingCommand.decode(data[:size]))
        data = data[size:]
    return commands, data


def commands_in(data: bytes) -> list[RemotingCommand]:
    """The commands of `data`, which must be whole frames."""
    commands, rest = split_frames(data)
    assert not rest, f"{len(rest)} bytes after the last whole frame"
    return commands
