"""Pure values and functions: no file, process, clock, network or environment is touched here."""
