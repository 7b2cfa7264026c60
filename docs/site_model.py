"""Write docs/model.json, the model on the first page of the site, from a run. `make docs` makes the page of it.

    pellucid train examples/english/lexicon.csv --source-column word --target-column pronunciation \\
        --target-symbols words --size small --no-pair-ngram --time 6m --run runs/english-small
    python docs/site_model.py runs/english-small
"""

import sys
from pathlib import Path

from msgspec.structs import replace

from pellucid.decoding.trace_schema import encode_json
from pellucid.export.web_page import build_model_page
from pellucid.viewer.inputs import open_run

FILE = Path(__file__).with_name("model.json")
NAME, TITLE = "english-small", "English words to pronunciations"
FIRST_SOURCE = "attention"


def main(run: Path) -> None:
    """Write the model of a run, with weights as 8-bit integers.

    Args:
        run: Run folder.
    """
    page = build_model_page([open_run(run, NAME, "cpu", None)], "int8", FIRST_SOURCE)
    FILE.write_bytes(encode_json(replace(page, title=TITLE)) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
