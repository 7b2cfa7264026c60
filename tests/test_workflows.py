"""The workflows use actions at fixed commits, few permissions, and files and targets that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text("utf-8")


def test_every_action_is_pinned_by_its_full_commit_and_names_its_version(workflow: str) -> None:
    uses = re.findall(r"^ +(?:- )?uses: (.*)$", workflow, re.MULTILINE)
    assert uses
    assert [line for line in uses if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", line)] == []


def test_one_action_has_one_commit_in_all_workflows() -> None:
    uses = re.findall(r"uses: (\S+)@(.*)$", "\n".join(path.read_text("utf-8") for path in WORKFLOWS), re.MULTILINE)
    assert len(set(uses)) == len({action for action, _ in uses}) > 5


def test_no_workflow_has_permissions_that_its_jobs_do_not_name(workflow: str) -> None:
    assert "\npermissions: {}\n" in workflow


def test_named_tests_and_make_targets_exist(workflow: str) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", workflow)) <= set(targets)
    assert [name for name in re.findall(r"\btests/\w+\.py\b", workflow) if not (ROOT / name).is_file()] == []
