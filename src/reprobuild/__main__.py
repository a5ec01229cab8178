"""`python -m reprobuild`: the same as the console script."""

from reprobuild.cli.entry import entry

if __name__ == "__main__":
    entry()
