"""Collections of vectors that agents supply themselves."""
