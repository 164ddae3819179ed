"""The knowledge graph: triples, and the operations that change them."""
