"""Installable artefacts, tried by commands of their own: see CONTRIBUTING.md."""
