"""The entry point of the command line: `apportion` and `python -m apportion`."""

import sys


def main() -> None:
    """Run the command line; a dependency that is not installed is a message, not a traceback."""
    try:
        from apportion.cli.app import app

        app(prog_name="apportion")
    except KeyboardInterrupt:  # while all this is imported: a verb handles it itself
        sys.stderr.write("\napportion: stopped.\n")
        sys.exit(130)
    except ModuleNotFoundError as error:
        module = error.name or ""
        if module.partition(".")[0] in ("", "apportion"):
            raise
        sys.exit(
            f"apportion: the Python module '{module}' is not installed.\n"
            "  Install apportion together with its dependencies: pip install . in its folder.\n"
            "  Then `apportion doctor` says whether everything works."
        )


if __name__ == "__main__":
    main()
