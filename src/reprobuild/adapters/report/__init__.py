"""Reporters: where progress events go (docs/events.md)."""
