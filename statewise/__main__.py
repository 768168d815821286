"""Run the command line as `python -m statewise`."""

import sys

from statewise.cli import main

sys.exit(main())
