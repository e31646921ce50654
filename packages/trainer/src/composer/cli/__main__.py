"""``python -m composer.cli``: the command, for launchers that start modules."""

import sys

from composer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
