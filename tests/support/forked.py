"""A function in a forked child."""

import asyncio
import os
from collections.abc import Callable


def forked(work: Callable[[], str]) -> str:
    """What `work` returns, or the text of what it raises, in a child, whose objects are collected before it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio._set_running_loop(None)
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text
