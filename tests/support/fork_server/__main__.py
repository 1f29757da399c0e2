"""`python -m tests.support.fork_server DESCRIPTOR`: the process that forks. One thread, no loop, no signal handlers."""

import gc
import os
import socket
import sys
from importlib import import_module
from typing import NoReturn

from tests.support.fork_server.messages import Request, receive

IMPORTED_BY_EACH = ("firearrow.broker.cli", "firearrow.broker.app.commands", "firearrow.broker.app.app")


def serve(connection: socket.socket) -> None:
    """Fork a broker for each request; the answer is its process id."""
    for module in IMPORTED_BY_EACH:
        import_module(module)
    gc.collect()
    gc.freeze()
    while (received := receive(connection)) is not None:
        request, files = received
        read, write = os.pipe()
        between = os.fork()
        if not between:
            broker = os.fork()
            if not broker:
                os.close(read)
                os.close(write)
                connection.close()
                run(request, files)
            os.write(write, b"%d" % broker)
            os._exit(0)
        os.close(write)
        os.waitpid(between, 0)  # the broker is a child of the subreaper from now on
        connection.sendall(os.read(read, 16))
        for each in (read, *files):
            os.close(each)


def run(request: Request, files: list[int]) -> NoReturn:
    """What `python -m firearrow.broker` does in a process of its own."""
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    gc.unfreeze()
    sys.exit(import_module("firearrow.broker.cli").broker(request.arguments))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
