"""The programs that workers of the tests run: one for each framework, with the same tasks."""
