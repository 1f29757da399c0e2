"""The arguments of one operation, written like the query of a URL; a name may come more than once."""

from urllib.parse import parse_qs


class Parameters:
    def __init__(self, query: str) -> None:
        self._values = parse_qs(query, keep_blank_values=True, max_num_fields=None)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def text(self, name: str, otherwise: str | None = None) -> str:
        found = self._values.get(name, [])
        if found:
            return found[0]
        if otherwise is None:
            raise ValueError(f"parameter {name} is missing")
        return otherwise

    def number(self, name: str, otherwise: int) -> int:
        return int(self.text(name, str(otherwise)))

    def under(self, prefix: str) -> dict[str, str]:
        """The values of names that begin with `prefix`, by the rest of the name."""
        return {n.removeprefix(prefix): v[0] for n, v in self._values.items() if n.startswith(prefix)}
