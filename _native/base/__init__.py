"""What every other native package may use: numbers in memory, and memory itself. Imports none of them."""
