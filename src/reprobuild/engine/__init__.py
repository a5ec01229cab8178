"""Use cases: evaluate, lock, realize, assemble, describe, verify, collect."""
