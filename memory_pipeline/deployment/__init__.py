"""What a Dagster instance on several machines is configured with, by name, in its ``dagster.yaml``.

Nothing else imports it: it needs the extra ``cluster``.
"""
