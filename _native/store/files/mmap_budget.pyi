class Mappings:
    """The mapped queue files, at most `files_max` (0: half of what the system allows)."""

    files_max: int
    unmapped_count: int
    def __init__(self, files_max: int = 0) -> None: ...
    def __len__(self) -> int: ...
