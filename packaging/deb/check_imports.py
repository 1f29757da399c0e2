"""Imports all modules of broker and client from a folder of packages: `python -I -S check_imports.py FOLDER`.

build.sh has taken away what none of them needs.
"""

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    failed = []
    for path in sorted((folder / "firearrow").rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        if path.name == "__main__.py":
            continue
        try:
            import_module(name)
        except ImportError as error:
            failed.append(f"{name}: {error}")
    for each in [*failed, *strangers(folder)]:
        print(each, file=sys.stderr)
    sys.exit(bool(failed or strangers(folder)))


def strangers(folder: Path) -> list[str]:
    """Packages that a broker does not need."""
    known = {"firearrow", "google", "orjson", "uvloop", "yaml", "_yaml"}
    found = {path.name for path in folder.iterdir() if not path.name.endswith(".dist-info")}
    return [f"{name}: a broker does not need this package" for name in sorted(found - known)]


if __name__ == "__main__":
    main()
