"""``python -m weighbridge``: the command, also where its script is not on the path."""

from weighbridge.cli import main

if __name__ == "__main__":
    main()
