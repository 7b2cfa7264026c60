"""Flags of all subcommands, for messages about unknown flags and for completion.

No module of a subcommand imports this one, except that of completion.
"""

from collections.abc import Collection, Mapping

from pellucid.cli.align import AlignArguments
from pellucid.cli.arguments import known_flags
from pellucid.cli.audit import AuditArguments
from pellucid.cli.check import CheckArguments
from pellucid.cli.data import DataArguments
from pellucid.cli.download import DownloadArguments
from pellucid.cli.evaluate import EvaluateArguments
from pellucid.cli.export import ExportArguments
from pellucid.cli.flag_suggestions import unknown_flag_error
from pellucid.cli.look import LookArguments
from pellucid.cli.predict_arguments import PredictArguments
from pellucid.cli.prepare import PrepareArguments
from pellucid.cli.score import ScoreArguments
from pellucid.cli.serve import ServeArguments
from pellucid.cli.share import ShareArguments
from pellucid.cli.split import SplitArguments
from pellucid.cli.train import TrainArguments
from pellucid.cli.tune import TuneArguments

MODEL_SUBCOMMANDS: Mapping[str, type] = {
    "split": SplitArguments,
    "prepare": PrepareArguments,
    "train": TrainArguments,
    "tune": TuneArguments,
    "predict": PredictArguments,
    "score": ScoreArguments,
    "align": AlignArguments,
    "audit": AuditArguments,
    "evaluate": EvaluateArguments,
    "look": LookArguments,
    "export": ExportArguments,
    "share": ShareArguments,
    "download": DownloadArguments,
    "check": CheckArguments,
    "serve": ServeArguments,
    "data": DataArguments,
}
"""Arguments of the subcommands whose flags are named in messages about unknown flags of others; they load quickly."""


def explain_unknown_flag(flag_text: str, verb: str, flags: Collection[str]) -> str:
    """Return the message about an unknown flag, with the subcommands that have it.

    Args:
        flag_text: The flag as it is written.
        verb: Name of the subcommand that lacks it.
        flags: All flags of this subcommand.
    """
    others: dict[str, Collection[str]] = {
        name: frozenset(known_flags(kind)) for name, kind in MODEL_SUBCOMMANDS.items() if name != verb
    }
    return f"{unknown_flag_error(flag_text, flags, others)} (pellucid {verb} --help)"
