"""``python -m weighbridge.cli``: the command, also where its script is not on the path."""

from weighbridge.cli.application import main

if __name__ == "__main__":
    main()
