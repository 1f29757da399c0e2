"""What `packaging/` holds: the files by tests; packages, image and older versions by programs.

`python -m tests.packaging.wheels` and `.upgrade`; `.deb`, `.unit` and `.image` need root.
"""
