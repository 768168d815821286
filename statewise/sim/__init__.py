"""The only place that imports the simulators."""
