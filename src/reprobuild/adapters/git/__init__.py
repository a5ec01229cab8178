"""git: object databases read and written without a checkout or anybody's configuration."""
