"""This machine as a test bench: what it is, and how gates are run on it."""
