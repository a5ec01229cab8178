"""The user's signing keys, and whose signatures are believed."""
