"""The kinds of step: each turns its typed specification into closed derivations."""
