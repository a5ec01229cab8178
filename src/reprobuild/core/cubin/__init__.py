"""Reading compiled CUDA code: ELF files, fat binaries, cubins. Pure functions over bytes."""
