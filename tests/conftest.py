"""What every test shares."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The networks of tests are so small that a second thread would only wait for the first."""
    torch.set_num_threads(1)
