"""Words of texts: tokenization, comparison and ranking; and the marks of recalled text."""
