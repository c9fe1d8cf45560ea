"""`python -m leapling`."""

import sys

from leapling.cli import main

sys.exit(main())
