"""Where the published data sets are that some tests read."""

import os
from pathlib import Path

PUBLISHED_DATA = Path(os.environ.get("PELLUCID_DATA", Path(__file__).parents[2] / "shared" / "data")).resolve()
"""Whole, because the commands of the tests are run in other folders."""
