"""The cluster of Ray in namespaces of this machine (benchmarks/ray_cluster.py): its names, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import ray_cluster
from benchmarks.ray_cluster import (
    PREFIX,
    NamespaceCluster,
    NamespaceError,
    Node,
    NodeProcess,
    check_system,
    is_alive,
    isolated_command,
    only_child,
    parse_arguments,
    parse_counts,
    start_time,
)


def test_every_name_begins_with_the_prefix_and_fits_a_device() -> None:
    node = Node(9, 15, 2)
    assert node.namespace.startswith(f"{PREFIX}9-") and node.device.startswith(f"{PREFIX}9")
    assert len(node.device) <= 15 and node.address == "198.18.9.16"
    assert isolated_command(Path("/tmp"), node, ["ray", "start"])[-2:] == ["ray", "start"]


def test_command_line() -> None:
    assert parse_counts("0,2,1") == [0, 2, 1]
    for text in ("", "1,-1", "two", ",".join(["1"] * 17)):
        with pytest.raises(ValueError):
            parse_counts(text)
    args = parse_arguments(["run", "--cpus", "1,1", "--", "python", "--version"])
    assert (args.cpus, args.command) == ([1, 1], ["python", "--version"])
    with pytest.raises(SystemExit):
        parse_arguments(["exec", "0"])


def test_the_head_has_no_address_to_join_and_the_others_have_that_of_the_head() -> None:
    cluster = NamespaceCluster((0, 2))
    head, other = map(cluster.ray_command, cluster.nodes)
    assert "--head" in head and "--num-cpus=0" in head and "--node-ip-address=198.18.0.1" in head
    assert "--address=198.18.0.1:6379" in other and "--num-cpus=2" in other


def test_commands_use_the_cluster_of_their_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression test: with RAY_ADDRESS=local, as in other tests, they started a cluster of their own."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("OTHER", "1")
    environment = NamespaceCluster(folder=tmp_path).environment()
    assert "RAY_ADDRESS" not in environment and environment["OTHER"] == "1"


def test_a_cluster_that_does_not_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NamespaceError, match=r"no cluster is running in .*: give start first"):
        NamespaceCluster.load(tmp_path)
    cluster = NamespaceCluster((0, 1), folder=tmp_path)
    cluster.processes[1] = NodeProcess(12345, 678)
    cluster.save()
    assert NamespaceCluster.load(tmp_path).processes == {1: NodeProcess(12345, 678)}
    with pytest.raises(NamespaceError, match="node 0 is not running"):
        cluster.command(0, ["true"])
    assert ray_cluster.main(["--folder", str(tmp_path), "kill", "2"]) == 2


def test_a_system_without_root_or_namespaces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NamespaceError, match="run this program as root"):
        check_system()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NamespaceError, match="the program ip is missing: install iproute2"):
        check_system()
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(NamespaceError, match="namespaces need Linux"):
        check_system()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_processes_are_found(tmp_path: Path) -> None:
    assert is_alive(os.getpid()) and not is_alive(2**22 + 1)
    started_at = start_time(os.getpid())
    assert NodeProcess(os.getpid(), started_at).is_alive
    assert not NodeProcess(os.getpid(), started_at - 1).is_alive  # another process had this number
    assert not NodeProcess(2**22 + 1, started_at).is_alive
    with pytest.raises(NamespaceError, match="has 0 children"):
        only_child(2**22 + 1)
    cluster = NamespaceCluster(folder=tmp_path / "new")
    cluster.write_token()
    path = Path(cluster.environment()["RAY_AUTH_TOKEN_PATH"])
    assert path.stat().st_mode & 0o077 == 0 and len(path.read_text()) == 64


def test_a_folder_to_which_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    folder.mkdir(0o700)
    NamespaceCluster(folder=folder).write_token()
    (tmp_path / "link").symlink_to(folder)
    folder.chmod(0o777)
    for path in (folder, tmp_path / "link"):
        with pytest.raises(NamespaceError, match="to which nobody else may write"):
            NamespaceCluster(folder=path).write_token()
        with pytest.raises(NamespaceError, match="to which nobody else may write"):
            NamespaceCluster.load(path)
    command = isolated_command(folder, Node(0, 1, 1), ["echo", "a b"])
    script = command[command.index("-c") + 1]
    assert "it's" not in script and command[-3:] == [str(folder), "echo", "a b"]


def test_all_processes_of_a_namespace_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[int]()
    monkeypatch.setattr(ray_cluster, "ip", lambda *arguments: "7\n8\n" if arguments[2] == "plray0-1" else "")
    monkeypatch.setattr(ray_cluster, "kill_process", killed.append)
    NamespaceCluster((0, 1)).kill(1)
    NamespaceCluster((0, 1)).kill(0)  # it was never started
    assert killed == [7, 8]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_node_on_which_ray_ends_at_its_start_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: on a busy machine, the limit of 15 seconds for the agents of a node ended the whole cluster."""
    commands = ["echo late agents; exit 1", "echo 'Ray runtime started.'; sleep 600 & wait"]
    killed = list[str]()

    def launch(cluster: NamespaceCluster, node: Node, home: Path) -> "subprocess.Popen[bytes]":
        with (home / "start.log").open("wb") as log:
            return subprocess.Popen(["sh", "-c", commands.pop(0)], stdout=log, process_group=0)

    monkeypatch.setattr(NamespaceCluster, "launch", launch)
    monkeypatch.setattr(ray_cluster, "kill_processes", killed.append)
    cluster = NamespaceCluster((0, 1), folder=tmp_path)
    cluster.start_node(1)
    try:
        assert cluster.is_running(1) and killed == ["plray0-1"] and commands == []
    finally:
        os.killpg(cluster.parents[-1].pid, 9)
    for parent in cluster.parents:
        parent.wait()
    monkeypatch.setattr(ray_cluster, "MAX_STARTS", 2)
    commands += ["exit 1", "echo no memory; exit 3"]
    with pytest.raises(NamespaceError, match=r"Ray has ended on 198\.18\.0\.1 \(exit code 3\):\nno memory"):
        cluster.start_node(0)
