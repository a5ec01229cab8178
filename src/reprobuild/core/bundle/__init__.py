"""Bundles and inventories as bytes: pure."""
