"""The command line: one thin file a command; the sole place that exits or prints."""
