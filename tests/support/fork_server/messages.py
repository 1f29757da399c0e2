"""What a test process asks the fork server for: the request as JSON of a known length, with two file descriptors."""

import json
import socket
import struct
from dataclasses import asdict, dataclass

LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Request:
    """`arguments` and all of the environment of `firearrow broker`, and its working folder."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def send(connection: socket.socket, request: Request, files: tuple[int, int]) -> None:
    body = json.dumps(asdict(request)).encode()
    socket.send_fds(connection, [LENGTH.pack(len(body))], list(files))
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """The next request with its files; None: the other side has closed."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, 2)
    if not head:
        return None
    body = b""
    while len(body) < LENGTH.unpack(head)[0]:
        body += connection.recv(LENGTH.unpack(head)[0] - len(body))
    return Request(**json.loads(body)), files
