"""The text of a release: `python packaging/release_text.py v0.1.0` prints the section of CHANGELOG.md.

SystemExit: the tag is not the version of pyproject.toml, or the section is missing, empty or marked as not released.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def release_text(tag: str, root: Path = ROOT) -> str:
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    if version != project["version"]:
        raise SystemExit(f"the tag {tag} is not the version of pyproject.toml, which is {project['version']}")
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text("utf-8"), flags=re.M)
    for section in sections[1:]:
        title, _, text = section.partition("\n")
        if title.split()[0] == version:
            if not re.search(r"\d{4}-\d{2}-\d{2}$", title):
                raise SystemExit(
                    f"CHANGELOG.md: write the date of the release after {version}, not {title!r}"
                )
            if not text.strip():
                raise SystemExit(f"CHANGELOG.md: the section of {version} is empty")
            return text.strip()
    raise SystemExit(f"CHANGELOG.md has no section {version}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python packaging/release_text.py TAG")
    print(release_text(sys.argv[1]))
