"""Folder of the published data sets that some tests read."""

import os
from pathlib import Path

PUBLISHED_DATA = Path(os.environ.get("PELLUCID_DATA", Path(__file__).parents[2] / "shared" / "data")).resolve()
"""Absolute path, because tests run commands in other folders."""
