"""Classes that the ``dagster.yaml`` of an instance on several machines names. Needs the extra ``cluster``."""
