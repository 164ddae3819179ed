"""The explorer: pages that show an agent's memory to a person."""
