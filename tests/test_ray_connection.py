"""Connections to Ray clusters: where the address comes from, and what is said if no cluster answers."""

import importlib.util
import os
import socket
from pathlib import Path

import pytest

from pellucid.cluster import ray_connection as connections
from pellucid.cluster.ray_connection import (
    ClusterError,
    find_cluster_address,
    ray_connection,
    ray_errors_as_messages,
)
from pellucid.dependencies import MissingDependencyError
from pellucid.errors import DataError

has_ray = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not has_ray, reason="needs Ray")


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a variable nor a file names a cluster."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def test_without_ray_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.dependencies.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as error, ray_connection("--on ray"):
        pass
    assert str(error.value) == ("--on ray needs the package 'ray', which is not installed: pip install 'pellucid[ray]'")


def test_the_address_is_that_of_the_variable_or_of_the_last_cluster_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_cluster_address() == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379\n")
    assert find_cluster_address() == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert find_cluster_address() == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "head:7000")
    assert find_cluster_address() == "head:7000"


@pytest.mark.parametrize("content", [b"\xff:6379", b"1" * 5000, None])
def test_a_file_of_another_user_that_holds_no_address_is_not_used(tmp_path: Path, content: bytes | None) -> None:
    """Regression test: bytes that are not UTF-8 ended in a traceback, and a named pipe made the command wait."""
    (tmp_path / "ray").mkdir()
    if content is None:
        os.mkfifo(tmp_path / "ray" / "ray_current_cluster")
    else:
        (tmp_path / "ray" / "ray_current_cluster").write_bytes(content)
    assert find_cluster_address() == ""


@pytest.mark.parametrize("host", ["head..local", f"{'a' * 64}.local", "a\0b"])
def test_a_host_that_cannot_be_one_is_reported(host: str) -> None:
    """Regression test: it ended in a traceback."""
    with pytest.raises(ClusterError, match="no Ray cluster answers at "):
        connections._check_answer(f"{host}:6379")


@needs_ray
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://head:10001", "Pellucid does not support addresses of Ray Client such as 'ray://head:10001'"),
        ("head:port", "expected HOST:PORT as the address of a Ray cluster, got 'head:port'"),
        (":6379", "expected HOST:PORT"),
        ("head:70000", "expected HOST:PORT"),
    ],
)
def test_an_address_of_another_form_is_refused(address: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message), ray_connection("--on ray", address):
        pass


@needs_ray
def test_a_head_that_does_not_answer_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT", 0.5)
    with socket.socket() as free:  # bound, but nobody listens
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError) as error, ray_connection("--on ray", address):
            pass
    assert str(error.value).startswith(f"no Ray cluster answers at {address} within 0.5 seconds (")
    assert "ray start --head" in str(error.value) and "RAY_ADDRESS to local" in str(error.value)


@needs_ray
def test_the_address_local_is_a_cluster_for_the_time_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("RAY_TMPDIR")  # the paths of Ray's sockets must be short
    monkeypatch.setenv("RAY_ADDRESS", "local")
    names = {"RAY_USAGE_STATS_ENABLED", "RAY_BACKEND_LOG_LEVEL"}
    for name in names:
        monkeypatch.delenv(name, raising=False)
    with ray_connection("--on ray") as cluster:
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"  # when its processes started, too
        assert (cluster.address, cluster.num_nodes) == ("local", 1) and cluster.num_cpus >= 1
        with ray_connection("--on ray") as same:  # this process is connected already
            assert same.num_cpus == cluster.num_cpus
        assert ray.is_initialized()
    assert not ray.is_initialized() and not names & os.environ.keys()


TRACEBACK = """ray::run_ray_job() (pid=5, ip=10.0.0.3)
  File "python/ray/_raylet.pyx", line 1, in ray._raylet.execute_task
RuntimeError: The remote function failed to import on the worker. This may be because needed library dependencies are
not installed in the worker environment:

Traceback (most recent call last):
  File "function_manager.py", line 1, in fetch_and_register_remote_function
ModuleNotFoundError: No module named 'pellucid'
"""


@needs_ray
def test_errors_of_ray_are_messages_and_bugs_are_not() -> None:
    from ray.exceptions import ActorDiedError, RayTaskError

    place = "ray::run_ray_job", 5, "10.0.0.3"
    missing = RayTaskError("run_ray_job", TRACEBACK, RuntimeError("failed"), *place)
    with pytest.raises(ClusterError) as error, ray_errors_as_messages():
        raise missing
    assert str(error.value).startswith(
        "a process of the Ray cluster cannot start (ModuleNotFoundError: No module named 'pellucid'): all machines need"
    )
    for lost in (ActorDiedError(), ConnectionRefusedError("refused")):
        with pytest.raises(ClusterError, match="run the same command again; it continues"), ray_errors_as_messages():
            raise lost
    traceback = "Traceback (most recent call last):\n  except ModuleNotFoundError:\nKeyError: 'oh'"
    bug = RayTaskError("run_ray_job", traceback, KeyError("oh"), *place)
    for other in (bug, DataError("line 3"), BrokenPipeError("output"), ModuleNotFoundError("no module 'other'")):
        with pytest.raises(type(other)) as same, ray_errors_as_messages():
            raise other
        assert same.value is other


@needs_ray
def test_a_package_of_the_extras_of_ray_is_named() -> None:
    import ray  # noqa: F401 (its modules are imported before the packages of its extras)

    message = (
        r"Ray is installed without packages that it needs \(No module named 'fsspek'\): pip install 'pellucid\[ray\]'"
    )
    with pytest.raises(MissingDependencyError, match=message), ray_errors_as_messages():
        exec("import fsspek", {"__name__": "ray.data"})
