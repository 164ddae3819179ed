"""Collections of vectors that agents fill themselves."""
