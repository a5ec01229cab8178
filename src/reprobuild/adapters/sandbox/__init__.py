"""Runs builds in bubblewrap: `executor.BubblewrapExecutor` implements `ports.Executor`."""
