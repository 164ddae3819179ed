"""One agent's graph as readers see it: what the pipeline has folded, and what the journal holds beyond that."""

from memory_pipeline.graph.graph import MAX_HOPS, Entity, Facts, Graph, GraphFact, Neighbor, Neighbors

__all__ = ["MAX_HOPS", "Entity", "Facts", "Graph", "GraphFact", "Neighbor", "Neighbors"]
