"""Serving profiles: typed settings, derived values, ownership rules, and Compose files of them."""
