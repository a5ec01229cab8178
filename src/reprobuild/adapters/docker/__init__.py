"""The Docker daemon, by its own SDK."""
