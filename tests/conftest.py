"""What every test shares."""

import os
import signal

import pytest
import shape_checks  # noqa: F401 (before anything of the package)
import torch
from hypothesis import settings

# The networks of tests are so small that a second thread would only wait for the first; also in processes of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOWEST_FIRST = (
    *("test_readme", "test_guides", "test_custom_task", "test_page_saving", "test_killed", "test_cli_tune"),
    *("test_page_screenshots", "test_cli_train", "test_resume", "test_device", "test_run_folder_damage"),
    *("test_page_corpus", "test_page_navigation", "test_ensemble_training", "test_transducer", "test_arguments"),
    *("test_lesson_pages", "test_bench_child", "test_spanish_faithful", "test_recipes_experiments", "test_gpu"),
    *("test_worker_pool", "test_platforms", "test_cli_foreign_flags", "test_reference_arguments", "test_cli_arguments"),
)
"""Files that take longest. They start first, so that no process has a long one to itself at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest files first."""
    order = {name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As in the processes that tests start."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """As in a terminal: those that run tests side by side ignore Ctrl-C, and hand that on to every child."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Without a GPU, Triton's kernels run in its interpreter. It is asked when a kernel is defined, so here and not later.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# On a server every run tries the same cases, so that red means changed; at a desk each run tries new ones. How long a
# case takes says how busy the machine is, and is no reason to fail.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
