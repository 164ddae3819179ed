"""Which partitions are due, and when they are requested."""
