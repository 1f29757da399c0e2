"""The examples of README.md, by the heading above them and their language."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def examples(heading: str, language: str) -> list[str]:
    """The code blocks of that language between this heading and the next one. KeyError without such a heading."""
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README.read_text("utf-8"), re.M | re.S))
    return re.findall(rf"```{language}\n(.*?)```", sections[heading], re.S)


def with_name_server(example: str, port: int) -> str:
    """The example with another port of the name server. ValueError if it has none."""
    if ":9876" not in example:
        raise ValueError("the example names no name server")
    return example.replace(":9876", f":{port}")
