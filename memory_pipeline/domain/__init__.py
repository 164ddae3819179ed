"""The rules of memory: calendar, conversations, facts, summaries, durable memories, ranking, ports.

The code here imports only the standard library, and does not read the clock or the environment.
"""
