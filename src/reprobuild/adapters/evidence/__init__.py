"""Evidence as files of the project: `evidence/OUTPUT/GATE.json`."""
