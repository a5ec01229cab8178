"""What a release says of itself to people: the source merge contract and the runbook."""
