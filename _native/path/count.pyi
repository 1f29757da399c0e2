class Count:
    """`value` was added up in so many `times`."""

    value: int
    times: int
