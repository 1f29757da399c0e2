"""Libraries that are loaded before libc into a process which a test starts."""

import os
from pathlib import Path


def preloading(library: Path) -> dict[str, str]:
    """Of the environment: `library` behind those that this process has; sanitizers have to come first."""
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".lstrip()}
