"""No network: enforced by the kernel, not only by good behaviour."""
