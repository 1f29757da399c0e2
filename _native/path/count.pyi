class Count:
    """`value`: the sum; `times`: the number of additions."""

    value: int
    times: int
