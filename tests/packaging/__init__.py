"""What `packaging/` holds: the files by tests; the Debian package and the image by programs that need root.

`python -m tests.packaging.deb`, `.unit` and `.image`.
"""
