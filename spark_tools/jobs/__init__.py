"""The jobs: each a Typer program of its own file for spark-submit, and what they share."""
