"""What Dagster sees: partitions, resources, assets, sensors and automation. No logic of memory lives here."""
