"""The front door: one object with an agent's memory, and a wrapper for chat clients."""
