"""What can be said of remote execution without a network: the wire's bytes, the input root."""
