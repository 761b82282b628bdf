"""The `fsl-async` command's subcommands, a module for each concern; `application` puts them together."""
