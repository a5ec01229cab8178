"""What changed between two releases: each level computed from the one before. Pure."""
