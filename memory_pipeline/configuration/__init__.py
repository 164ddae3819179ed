"""What a deployment sets for workspaces and agents, in ``config/workspaces.yaml`` of the lake."""
