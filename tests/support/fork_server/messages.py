"""What a test process asks the fork server for: JSON of a known length, and three descriptors."""

import json
import socket
import struct
from dataclasses import asdict, dataclass

LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Request:
    """`firearrow ARGUMENTS…`, or `python -c PROGRAM ARGUMENTS…`; all of its environment, and its working folder.
    `session`: it leads one of its own."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    session: bool = False


def send(connection: socket.socket, request: Request, files: list[int]) -> None:
    body = json.dumps(asdict(request)).encode()
    socket.send_fds(connection, [LENGTH.pack(len(body))], files)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """The next request with its files; None: the other side has closed."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    if not head:
        return None
    body = b""
    while len(body) < LENGTH.unpack(head)[0]:
        body += connection.recv(LENGTH.unpack(head)[0] - len(body))
    return Request(**json.loads(body)), files
