"""A cluster of Ray on this machine: each node in namespaces of its own, as if it were a machine of its own.

    python benchmarks/ray_cluster.py run [--cpus 0,1,1] [--store 100] COMMAND ...
    python benchmarks/ray_cluster.py start [--cpus 0,1,1] [--store 100] [--folder FOLDER]
    python benchmarks/ray_cluster.py exec NODE COMMAND ...
    python benchmarks/ray_cluster.py kill NODE | cut NODE | join NODE | restart NODE | status | stop

Before the subcommand, --cluster N (0 to 9; 0 by default) names one of several clusters of this machine.

`run` starts a cluster, runs a command on node 0, and stops the cluster, also after an error or Ctrl-C; its exit code is
that of the command. `start` leaves the cluster running; the other subcommands act on it:

exec     run a command on a node
kill     kill all processes of a node by SIGKILL, as a machine that loses its power
cut      cut the network of a node; its processes go on
join     restore the network of a node
restart  start a killed node again, with the same address
status   print the address and the state of each node
stop     kill everything, and remove all namespaces and network devices

--cpus states the number of CPUs of each node, and so the number of nodes; node 0 is the head of the cluster, which has
none by default, so that it runs no task. --store is the memory of each node's object store in MB. Logs of Ray are in
FOLDER/node-0 ..., by default /tmp/pellucid-ray-N.

Each node has a network namespace with the address 198.18.N.1 ... on a bridge (the range is reserved for benchmarks; no
packet leaves the machine), and mount, process and host name namespaces: its own /tmp/ray, /dev/shm and /proc. All other
folders are shared by all nodes, as on a shared file system whose locks hold for all machines. Without namespaces, Ray
takes all nodes of one machine for the same address. Linux, as root, with the programs of iproute2 and util-linux;
Python needs the package ray. Three nodes take about 1.5 GB of memory, and 15 seconds to start.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

PREFIX = "plray"
"""Start of the names of all namespaces and network devices; the number of the cluster follows."""
NETWORK = "198.18"
"""First two numbers of all addresses; the number of the cluster follows."""
MAX_CLUSTERS = 10
HEAD_PORT, NODE_PORT = 6379, 6380
"""Ports of the head and of the manager of each node."""
MAX_NODES = 16
START_SECONDS = 600
"""Maximum time until Ray has started on a node. Imports of Ray take minutes on a busy machine."""
MAX_STARTS = 5
"""Maximum number of attempts to start Ray on a node. In Ray 2.60 a node ends if its agents take more than 15 seconds to
start, as they do on a busy machine; no setting changes that."""
STARTED = "Ray runtime started"
"""Text of `ray start` after the node has joined the cluster."""
RAY_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_niceness": "0",
}
"""Environment of all nodes: a token for the cluster alone, no report on usage, time enough on a busy machine, and
workers of normal priority (Ray's default is 15)."""

START_FIELD = 22 - 3
"""Index of the time of the start among the fields of `process_status`."""
WAIT_PROGRAM = """
import sys, time, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(0.2)
"""
"""Program that waits until a number of nodes have joined the cluster."""


class NamespaceError(Exception):
    """The cluster cannot be started, or a node is not as a subcommand needs it."""


class Node(NamedTuple):
    """A node of the cluster."""

    cluster: int
    """Number of the cluster."""
    number: int
    cpus: int
    """Number of CPUs that Ray may use there."""

    @property
    def address(self) -> str:
        """Address of the node."""
        return f"{NETWORK}.{self.cluster}.{self.number + 1}"

    @property
    def namespace(self) -> str:
        """Name of the network namespace."""
        return f"{PREFIX}{self.cluster}-{self.number}"

    @property
    def device(self) -> str:
        """Name of the network device at the bridge, whose other end is in the namespace."""
        return f"{PREFIX}{self.cluster}v{self.number}"


class NodeProcess(NamedTuple):
    """First process in the process namespace of a node."""

    number: int
    """Its id, which another process may have later."""
    started_at: int
    """Time of its start, in the unit of /proc/PID/stat."""

    @property
    def is_alive(self) -> bool:
        """True until it ends."""
        return is_alive(self.number) and start_time(self.number) == self.started_at


class ClusterState(NamedTuple):
    """What the subcommands know about a running cluster; a file holds it."""

    cpus: list[int]
    """CPUs of each node."""
    store: int
    """Memory of the object store of each node in MB."""
    processes: dict[str, NodeProcess]
    """First process in the process namespace of each node that was started, by the number of the node."""


class NamespaceCluster:
    """A cluster. As a context manager it starts at the beginning of the block and is removed at its end."""

    def __init__(
        self, cpus: Sequence[int] = (0, 1, 1), store: int = 100, folder: Path | None = None, number: int = 0
    ) -> None:
        """Initialize without starting anything.

        Args:
            cpus: Number of CPUs of each node, the head first.
            store: Memory of the object store of each node in MB, 80 or more.
            folder: Folder of the logs, the sockets and the state; None for `default_folder`.
            number: Number of the cluster, 0 to 9, among those of this machine.
        """
        self.nodes = [Node(number, index, count) for index, count in enumerate(cpus)]
        self.store = store
        self.folder = folder or default_folder(number)
        self.number = number
        self.processes: dict[int, NodeProcess] = {}
        """First process in the process namespace of each node that was started."""
        self.parents = list["subprocess.Popen[bytes]"]()
        """Parents of these processes, if this process has started them."""

    @classmethod
    def load(cls, folder: Path | None = None, number: int = 0) -> "NamespaceCluster":
        """Return the running cluster.

        Args:
            folder: Its folder; None for `default_folder`.
            number: Its number.

        Raises:
            NamespaceError: None is running, or the folder is one of another user.
        """
        folder = folder or default_folder(number)
        check_folder(folder)
        try:
            state = ClusterState(**json.loads((folder / "state.json").read_text("utf-8")))
        except FileNotFoundError:
            raise NamespaceError(f"no cluster is running in {folder}: give start first") from None
        cluster = cls(state.cpus, state.store, folder, number)
        cluster.processes = {int(number): NodeProcess(*process) for number, process in state.processes.items()}
        return cluster

    def __enter__(self) -> "NamespaceCluster":
        """Start all nodes and return the cluster."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the cluster."""
        remove_cluster(self.folder, self.number)
        for parent in self.parents:
            parent.wait()

    def start(self) -> None:
        """Start all nodes, the head first; if that fails, remove everything.

        Raises:
            NamespaceError: This user is not root, a program or Ray is missing, a cluster is running, or a node does not
                answer.
        """
        check_system()
        if list_namespaces(self.number) or (self.folder / "state.json").exists():
            raise NamespaceError("a cluster is running, or was not stopped: give stop first")
        try:
            add_bridge(self.number)
            for node in self.nodes:
                add_network(node)
            self.write_token()
            for node in self.nodes:
                self.start_node(node.number)
            if self.run(0, [sys.executable, "-c", WAIT_PROGRAM, str(len(self.nodes))]):
                raise NamespaceError(f"not all nodes have joined the cluster; see {self.folder}")
        except BaseException:
            remove_cluster(self.folder, self.number)
            raise

    def start_node(self, number: int) -> None:
        """Start the processes of a node, new or killed, and wait until it answers.

        Args:
            number: Number of the node.

        Raises:
            NamespaceError: The node runs, ends at once, or does not answer.
        """
        node = self.nodes[number]
        if self.is_running(number):
            raise NamespaceError(f"node {number} is running")
        home = self.folder / f"node-{number}"
        for attempts_left in reversed(range(MAX_STARTS)):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            process = self.launch(node, home)
            self.parents.append(process)
            try:
                wait_for_start(node.address, process, home / "start.log")
                break
            except NamespaceError:
                if not attempts_left:
                    raise
                kill_processes(node.namespace)
        first = only_child(process.pid)
        self.processes[number] = NodeProcess(first, start_time(first))
        self.save()

    def launch(self, node: Node, home: Path) -> "subprocess.Popen[bytes]":
        """Launch Ray in the namespaces of a node, and return the parent of its processes.

        Args:
            node: The node.
            home: Folder of the node; its file start.log gets the output.
        """
        with (home / "start.log").open("wb") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", node.namespace, *isolated_command(home, node, self.ray_command(node))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                start_new_session=True,
            )

    def write_token(self) -> None:
        """Write a new token, without which no program can connect to the cluster (Ray 2.59 or later)."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(self.folder)
        path = self.folder / "token"
        path.unlink(missing_ok=True)
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(secrets.token_hex(32))

    def environment(self) -> dict[str, str]:
        """Return the environment of the processes of all nodes: without an address, commands find the cluster of their
        node.
        """
        own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        token = str((self.folder / "token").resolve())
        return {**own, **RAY_SETTINGS, "PYTHONUNBUFFERED": "1", "RAY_AUTH_TOKEN_PATH": token}

    def run(self, number: int, command: Sequence[str]) -> int:
        """Run a command on a node, in the current folder, and return its exit code.

        Args:
            number: Number of the node.
            command: The command.

        Raises:
            NamespaceError: The node was killed.
        """
        return subprocess.run(self.command(number, command), env=self.environment(), check=False).returncode

    def ray_command(self, node: Node) -> list[str]:
        """Return the command that starts Ray on a node and ends when Ray does.

        Args:
            node: The node.
        """
        head = self.nodes[0]
        role = (
            ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
            if node == head
            else [f"--address={head.address}:{HEAD_PORT}"]
        )
        return [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *role),
            *(f"--node-ip-address={node.address}", f"--node-manager-port={NODE_PORT}", f"--num-cpus={node.cpus}"),
            *("--num-gpus=0", f"--object-store-memory={self.store * 2**20}"),
        ]

    def command(self, number: int, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on a node, in the current folder, with `environment`.

        Args:
            number: Number of the node.
            command: The command.

        Raises:
            NamespaceError: The node was killed.
        """
        if not self.is_running(number):
            raise NamespaceError(f"node {number} is not running: give restart first")
        namespaces = ["--net", "--mount", "--pid", "--uts"]
        return ["nsenter", f"--target={self.processes[number].number}", *namespaces, f"--wd={os.getcwd()}", *command]

    def is_running(self, number: int) -> bool:
        """Return whether a node has processes.

        Args:
            number: Number of the node.
        """
        return number in self.processes and self.processes[number].is_alive

    def kill(self, number: int) -> None:
        """Kill all processes of a node; the others learn of it only from its silence or its closed connections.

        Args:
            number: Number of the node.
        """
        kill_processes(self.nodes[number].namespace)

    def set_network(self, number: int, connected: bool) -> None:
        """Cut or restore the network of a node.

        Args:
            number: Number of the node.
            connected: Whether it is restored.
        """
        ip("link", "set", self.nodes[number].device, "up" if connected else "down")

    def save(self) -> None:
        """Write the state for later subcommands."""
        processes = {str(number): process for number, process in self.processes.items()}
        state = ClusterState([node.cpus for node in self.nodes], self.store, processes)
        (self.folder / "state.json").write_text(json.dumps(state._asdict()), "utf-8")


def check_system() -> None:
    """Check that this system can start a cluster.

    Raises:
        NamespaceError: It cannot; the message says what is missing.
    """
    if not sys.platform.startswith("linux"):
        raise NamespaceError("namespaces need Linux")
    if os.geteuid() != 0:
        raise NamespaceError("network namespaces need root: run this program as root")
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            raise NamespaceError(f"the program {program} is missing: install {package}")


def isolated_command(home: Path, node: Node, command: Sequence[str]) -> list[str]:
    """Return a command line that runs a command in mount, process and host name namespaces of a node.

    Args:
        home: Folder of the node, which becomes its /tmp/ray.
        node: The node.
        command: The command. When it ends or is killed, so are all processes that it started.
    """
    steps = (
        "mount --make-rprivate /",
        "mkdir -p /tmp/ray",
        'mount --bind "$1" /tmp/ray',
        "mount -t tmpfs tmpfs /dev/shm",
        f"hostname {node.namespace}",
        "shift",
        'exec "$@"',
    )
    isolate = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
    return [*isolate, "sh", "-c", " && ".join(steps), "sh", str(home.resolve()), *command]


def ip(*arguments: str) -> str:
    """Run the program ip and return its output.

    Args:
        arguments: Its arguments.

    Raises:
        NamespaceError: It fails; the message is its own.
    """
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise NamespaceError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def default_folder(number: int) -> Path:
    """Return the folder of a cluster.

    Args:
        number: Number of the cluster.
    """
    return Path(f"/tmp/pellucid-ray-{number}")


def check_folder(folder: Path) -> None:
    """Check that no other user can write to the folder of a cluster: its files name processes, which root kills.

    Args:
        folder: The folder; it need not exist.

    Raises:
        NamespaceError: It is a link, or others may write to it.
    """
    if not os.path.lexists(folder):
        return
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise NamespaceError(f"{folder} must be a folder of this user to which nobody else may write: name another one")


def host_address(number: int) -> str:
    """Return the address of the bridge of a cluster, which is that of this machine.

    Args:
        number: Number of the cluster.
    """
    return f"{NETWORK}.{number}.254"


def add_bridge(number: int) -> None:
    """Add the bridge that connects all nodes of a cluster.

    Args:
        number: Number of the cluster.
    """
    name = f"{PREFIX}{number}"
    ip("link", "add", name, "type", "bridge")
    ip("address", "add", f"{host_address(number)}/24", "dev", name)
    ip("link", "set", name, "up")


def add_network(node: Node) -> None:
    """Add the network namespace of a node, and a pair of devices between it and the bridge.

    The default route lets Ray find the node's own address; this machine forwards nothing.

    Args:
        node: The node.
    """
    ip("netns", "add", node.namespace)
    ip("link", "add", node.device, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    ip("link", "set", node.device, "master", f"{PREFIX}{node.cluster}", "up")
    ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", node.namespace, "link", "set", device, "up")
    ip("-n", node.namespace, "route", "add", "default", "via", host_address(node.cluster))


def list_namespaces(number: int) -> list[str]:
    """Return the names of the network namespaces of all nodes of a cluster.

    Args:
        number: Number of the cluster.
    """
    names = [line.split()[0] for line in ip("netns", "list").splitlines() if line]
    return [name for name in names if name.startswith(f"{PREFIX}{number}-")]


def remove_cluster(folder: Path, number: int) -> None:
    """Kill all processes of all nodes of a cluster, and remove their namespaces and devices; nothing else is touched.

    Signals are ignored meanwhile, so that a second Ctrl-C leaves nothing behind.

    Args:
        folder: Folder of the cluster, whose logs stay.
        number: Number of the cluster.
    """
    with ignore_signals():
        for name in list_namespaces(number):
            kill_processes(name)
            ip("netns", "delete", name)
        for link in json.loads(ip("-json", "link", "show") or "[]"):
            if link["ifname"].startswith(f"{PREFIX}{number}"):
                with suppress(
                    NamespaceError
                ):  # a device disappears with its namespace, at a time of the system's choice
                    ip("link", "delete", link["ifname"])
        (folder / "state.json").unlink(missing_ok=True)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM in the block."""
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def kill_processes(namespace: str) -> None:
    """Kill all processes of a network namespace.

    Args:
        namespace: Its name.
    """
    for process in ip("netns", "pids", namespace).split():
        kill_process(int(process))


def kill_process(process: int) -> None:
    """Kill a process, and wait for its end at most 10 seconds.

    Args:
        process: Its id; it may have ended.
    """
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    for _ in range(100):
        if not is_alive(process):
            return
        time.sleep(0.1)


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not.

    Args:
        process: Its id.
    """
    return process_status(process)[:1] not in ([], ["Z"])


def start_time(process: int) -> int:
    """Return the time when a process has started; 0 if it has ended.

    Args:
        process: Its id.
    """
    return int(status[START_FIELD]) if (status := process_status(process)) else 0


def process_status(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third one on, the state; none if the process has ended.

    Args:
        process: Its id.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def only_child(process: int) -> int:
    """Return the id of the only child of a process.

    Args:
        process: Id of the process.

    Raises:
        NamespaceError: It has ended, or has several.
    """
    path = Path(f"/proc/{process}/task/{process}/children")
    children = path.read_text("utf-8").split() if path.exists() else []
    if len(children) != 1:
        raise NamespaceError(f"process {process} has {len(children)} children instead of one")
    return int(children[0])


def wait_for_start(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until Ray has started on a node.

    Args:
        address: Address of the node, for messages.
        process: Process that starts Ray.
        log: Its output.

    Raises:
        NamespaceError: The process has ended, or `START_SECONDS` have passed.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        output = log.read_text("utf-8", "replace")
        if STARTED in output:
            return
        if process.poll() is not None:
            raise NamespaceError(f"Ray has ended on {address} (exit code {process.returncode}):\n{output[-2000:]}")
        time.sleep(1)
    raise NamespaceError(f"Ray has not started on {address} within {START_SECONDS} seconds; see {log}")


def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Treat SIGTERM as Ctrl-C, so that the cluster is removed.

    Args:
        number: The signal.
        frame: Stack frame.

    Raises:
        KeyboardInterrupt: Always.
    """
    raise KeyboardInterrupt


def describe(cluster: NamespaceCluster) -> str:
    """Return one line for each node: number, address, CPUs, and whether it runs.

    Args:
        cluster: The cluster.
    """
    lines = [
        f"{node.number}  {node.address}  {node.cpus} CPUs  {'running' if cluster.is_running(node.number) else 'killed'}"
        for node in cluster.nodes
    ]
    return "\n".join(lines)


def parse_counts(text: str) -> list[int]:
    """Return the numbers of a list.

    Args:
        text: Numbers from 0, separated by commas.

    Raises:
        ValueError: It is no such list, or has more than `MAX_NODES` numbers.
    """
    counts = [int(part) for part in text.split(",")]
    if len(counts) > MAX_NODES or min(counts) < 0:
        raise ValueError(text)
    return counts


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line.

    Args:
        arguments: Command line; None for that of this process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", type=int, default=0, choices=range(MAX_CLUSTERS), help="number of the cluster")
    parser.add_argument("--folder", type=Path, help="logs and state (default: /tmp/pellucid-ray-N)")
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("run", "start"):
        action = actions.add_parser(name)
        action.add_argument("--cpus", type=parse_counts, default=[0, 1, 1], help="CPUs of each node, such as 0,1,1")
        action.add_argument("--store", type=int, default=100, help="object store of each node in MB")
    for name in ("exec", "kill", "cut", "join", "restart"):
        actions.add_parser(name).add_argument("node", type=int)
    for name in ("run", "exec"):
        actions.choices[name].add_argument("command", nargs=argparse.REMAINDER)
    for name in ("status", "stop"):
        actions.add_parser(name)
    parsed = parser.parse_args(arguments)
    parsed.folder = parsed.folder or default_folder(parsed.cluster)
    if parsed.action in ("run", "exec"):
        parsed.command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
        if not parsed.command:
            parser.error(f"{parsed.action}: give a command")
    return parsed


def act(args: Any) -> int:  # noqa: ANN401 (a namespace)
    """Perform a subcommand and return the exit code.

    Args:
        args: Parsed command line.

    Raises:
        NamespaceError: It cannot be performed.
    """
    if args.action == "stop":
        check_system()
        remove_cluster(args.folder, args.cluster)
        return 0
    if args.action == "run":
        with NamespaceCluster(args.cpus, args.store, args.folder, args.cluster) as cluster:
            return cluster.run(0, args.command)
    if args.action == "start":
        cluster = NamespaceCluster(args.cpus, args.store, args.folder, args.cluster)
        cluster.start()
        print(describe(cluster))
        return 0
    cluster = NamespaceCluster.load(args.folder, args.cluster)
    if args.action == "status":
        print(describe(cluster))
        return 0
    if not 0 <= args.node < len(cluster.nodes):
        raise NamespaceError(f"there is no node {args.node}: expected 0 to {len(cluster.nodes) - 1}")
    match args.action:
        case "exec":
            return cluster.run(args.node, args.command)
        case "kill":
            cluster.kill(args.node)
        case "restart":
            cluster.start_node(args.node)
        case _:
            cluster.set_network(args.node, args.action == "join")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: Command line; None for that of this process.

    Returns:
        Exit code: that of the command, 2 for an error, 130 after an interruption.
    """
    args = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        return act(args)
    except NamespaceError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
