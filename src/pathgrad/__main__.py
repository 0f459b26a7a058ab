"""`python -m pathgrad` is the command line."""

import sys

from pathgrad._cli.main import main

sys.exit(main())
