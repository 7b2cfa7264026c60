"""Settings and fixtures of all tests."""

import gc
import os
import signal

import pytest
import shape_checks  # noqa: F401 (must precede every import of the package)
import torch
from hypothesis import settings

# Networks in tests are too small for a second thread. Processes that the tests start inherit this setting.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOWEST_FIRST = (
    *("test_readme", "test_guides", "test_custom_task", "test_page_saving", "test_killed", "test_cli_tune"),
    *("test_page_screenshots", "test_cli_train", "test_resume", "test_device", "test_run_folder_damage"),
    *("test_page_corpus", "test_page_navigation", "test_ensemble_training", "test_transducer", "test_argument_checks"),
    *("test_lesson_pages", "test_bench_child", "test_spanish_faithful", "test_recipes_experiments", "test_gpu"),
    *("test_worker_pool", "test_platforms", "test_cli_foreign_flags", "test_reference_arguments", "test_cli_arguments"),
)
"""The slowest test files. They start first, so that all processes end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest files to the front."""
    positions = {name: position for position, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: positions.get(item.path.stem, len(positions)))


def pytest_collection_finish() -> None:
    """Leave the objects of all modules and tests out of later garbage collections, which took a sixth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> None:
    """PyTorch uses one thread, as in the processes that the tests start."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def default_interrupt_handler() -> None:
    """Ctrl-C raises KeyboardInterrupt, as in a terminal.

    Worker processes of the test runner ignore Ctrl-C, and their child processes inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Without a GPU, Triton's kernels run in its interpreter. Triton reads this variable when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Continuous integration tries the same examples in every run, so that only a change of the code can make a test fail.
# Elsewhere each run tries new examples, and more of them. There is no deadline, because the time of an example depends
# on the load.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
