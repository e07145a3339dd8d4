"""Words of a command line, as other launchers take them."""


def script_path(script: str) -> str:
    """The script's path so that no launcher takes it for an option."""
    return f"./{script}" if script.startswith("-") else script
