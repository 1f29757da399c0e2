"""Libraries that are loaded before libc into a process which a test starts."""

import os
from pathlib import Path


def preloading(library: Path) -> dict[str, str]:
    """Environment with `library` after those that this process preloads; sanitizers have to be first."""
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".lstrip()}
