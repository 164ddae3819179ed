"""Memory for coding agents: Claude Code, Codex and Cursor.

- ``hook``: the command that they run at each event. It is light: nothing else is imported while the service answers.
- ``events``: what an event does, and what the agent gets for it. The service and the hook share it.
- ``plugin``: the files of the plugin, as each agent reads them.
- ``installing``: writes them, with a backup, and undoes that.
"""
