"""OCI images: layers as deterministic streams, layouts and archives."""
