"""What reading device code needs of the world: decompression, and demangling in a child process."""
