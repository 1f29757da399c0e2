"""`python -m tests.support.fork_server DESCRIPTOR`: the process that forks. One thread, no loop, no signal handlers."""

import functools
import gc
import os
import signal
import socket
import sys
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from firearrow.client.cli.main import main, own_entries
from tests.support.fork_server.messages import Request, receive
from tests.support.startup import CONSTANTS
from tests.support.startup.sitecustomize import set_constants

OF_A_BROKER = ("firearrow.broker.cli", "firearrow.broker.app.commands", "firearrow.broker.app.app")
IMPORTED = {
    "broker": OF_A_BROKER,
    "namesrv": OF_A_BROKER,
    "-c": ("firearrow.client.public", "firearrow.client.blocking"),
}
"""What these commands import when they run, and programs that are clients."""


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
    entry = own_entries().get(name)
    for module in IMPORTED.get(name, (entry.module,) if entry else ()):
        import_module(module)
    gc.collect()
    gc.freeze()


def run(request: Request, files: list[int]) -> NoReturn:
    """What `firearrow`, or `python -c`, does in a process of its own."""
    if request.session:
        os.setsid()
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
    if request.arguments[:1] != ["-c"]:
        sys.argv[1:] = request.arguments
        main()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored if the tests run in a shell's background
    _, program, *arguments = request.arguments
    sys.argv[:] = ["-c", *arguments]
    sys.path[0] = ""
    sys.modules["__main__"] = module = ModuleType("__main__")
    exec(program, module.__dict__)
    sys.exit()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
