"""The command line (typer): thin, every command's work is in a package."""
