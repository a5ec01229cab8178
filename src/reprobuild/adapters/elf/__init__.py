"""What ELF files need, read with pyelftools."""
