"""POP consumption: check points, receipt handles, revive."""
