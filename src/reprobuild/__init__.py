"""Declarative, reproducible builds of LLM-serving container images."""

__version__ = "0.1.0"
