"""Pack recalled items into a token budget: for recall, and for the context of a prompt."""
