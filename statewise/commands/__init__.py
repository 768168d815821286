"""The subcommands of `statewise`. Each is a dataclass of options with a `run` method."""
