"""The subcommands of `statewise`: dataclasses of their options, each with a `run`."""
