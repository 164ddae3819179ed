"""What memory means, without a library: calendar, conversations, facts, summaries, ranking, ports.

Nothing in here reads a clock, a file or the environment, and nothing but the standard library is imported.
"""
