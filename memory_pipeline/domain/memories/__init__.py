"""Durable memories: independent of the calendar, computed as a fold of events, and consolidated daily.

``record`` has a memory, ``events`` its changes, ``fold`` computes memories from events. Each pass of the consolidation
is a function of the memories and a date that returns further events.
"""
