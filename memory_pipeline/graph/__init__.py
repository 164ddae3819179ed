"""One agent's graph for readers: the pipeline's tables overlaid with pending journal entries."""

from memory_pipeline.graph.graph import MAX_HOPS, Entity, Facts, Graph, GraphFact, Neighbor, Neighbors

__all__ = ["MAX_HOPS", "Entity", "Facts", "Graph", "GraphFact", "Neighbor", "Neighbors"]
