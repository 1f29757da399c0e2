class Mappings:
    """Which queue files are mapped: at most `files_max` of them."""

    files_max: int
    unmapped_count: int
    def __init__(self, files_max: int = 0) -> None: ...
    def __len__(self) -> int: ...
