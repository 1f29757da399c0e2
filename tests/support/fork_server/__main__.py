"""`python -m tests.support.fork_server DESCRIPTOR`: the process that forks. One thread, no loop, no signal handlers."""

import functools
import gc
import os
import socket
import sys
from importlib import import_module
from typing import NoReturn

from firearrow.client.cli.main import main, own_entries
from tests.support.fork_server.messages import Request, receive
from tests.support.startup import CONSTANTS
from tests.support.startup.sitecustomize import set_constants

IMPORTED_LATE = dict.fromkeys(
    ("broker", "namesrv"), ("firearrow.broker.app.commands", "firearrow.broker.app.app")
)
"""What these commands import when they run."""


def serve(connection: socket.socket) -> None:
    """Fork a command for each request; the answer is its process id."""
    while (received := receive(connection)) is not None:
        request, files = received
        load(*request.arguments[:1])
        read, write = os.pipe()
        between = os.fork()
        if not between:
            command = os.fork()
            if not command:
                os.close(read)
                os.close(write)
                connection.close()
                run(request, files)
            os.write(write, b"%d" % command)
            os._exit(0)
        os.close(write)
        os.waitpid(between, 0)  # the command is a child of the subreaper from now on
        connection.sendall(os.read(read, 16))
        for each in (read, *files):
            os.close(each)


@functools.cache
def load(name: str = "") -> None:
    """Import the modules of this command, once."""
    if (entry := own_entries().get(name)) is not None:
        for module in (entry.module, *IMPORTED_LATE.get(name, ())):
            import_module(module)
        gc.collect()
        gc.freeze()


def run(request: Request, files: list[int]) -> NoReturn:
    """What `firearrow` does in a process of its own."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # the streams remember what their files were: a terminal, or seekable
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    gc.unfreeze()
    if values := request.environment.get(CONSTANTS):
        set_constants(values)
    sys.argv[1:] = request.arguments
    main()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
