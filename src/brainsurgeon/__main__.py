"""Run the command line: `python -m brainsurgeon`."""

from brainsurgeon.cli import main

if __name__ == "__main__":
    main()
