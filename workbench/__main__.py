"""`python -m workbench` is the command line."""

import sys

from workbench.cli import main

sys.exit(main())
