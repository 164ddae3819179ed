"""Durable memories: what an agent keeps beside the calendar, as a fold of events, and its nightly upkeep.

``memory`` is the record, ``events`` what changes it, ``fold`` turns the one into the other. Each pass of the nightly
upkeep is a function from what is remembered, and a date, to further events of the same form.
"""
