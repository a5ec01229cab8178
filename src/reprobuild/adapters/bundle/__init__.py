"""Bundles on the disk: writing, reading, and what makes one start itself."""
