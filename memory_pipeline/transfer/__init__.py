"""Copy memory: to another lake, or as it was at an earlier time."""
