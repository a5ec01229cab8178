"""How large what is said of a pull request may be."""

MAX_NUMBER = 2**31 - 1
