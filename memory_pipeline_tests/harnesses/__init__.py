"""Programs that run the whole product for minutes or hours: a soak, and a cluster of workers. They mirror no module."""
