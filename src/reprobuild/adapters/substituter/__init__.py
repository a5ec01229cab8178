"""Binary caches: directories and servers of static files."""
