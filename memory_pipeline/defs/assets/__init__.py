"""Assets of the grains, of consolidation and of the marts."""
