"""TOML texts as typed values and back: the flake, the component files and the lock."""
