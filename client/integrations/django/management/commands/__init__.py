"""The commands: `consume`."""
