"""The command of `make bench`: `python -P bench [--only relay,report]`."""

import sys

from runner import main

sys.exit(main())
