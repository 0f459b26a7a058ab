"""Run the command line as `python -m pathgrad`."""

import sys

from pathgrad._cli.main import main

sys.exit(main())
