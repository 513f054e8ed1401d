"""What the Makefile runs before Headrace is installed: the standard library of Python 3.11 has to suffice."""
