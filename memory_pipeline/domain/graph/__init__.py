"""The graph of facts: triples, and the operations that change them."""
