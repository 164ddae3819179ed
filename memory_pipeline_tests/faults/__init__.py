"""Injected faults of networks and stores, and killed processes: nothing is lost or duplicated."""
