"""Processing of the blocks of a folder by the machines of a Ray cluster, through Ray Data.

The rows of the data set are runs of numbers of blocks; their contents are files of the folder, which all machines
share. Each actor of Ray Data loads the model once and processes one block at a time. If a process or a machine dies,
Ray starts the actor again elsewhere and repeats its block; a block that is finished is not processed again.
"""

import json
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from threadpoolctl import threadpool_limits

from pellucid.cluster.block_folder import LOCK, BlockFolder, BlockNumbers
from pellucid.cluster.ray_connection import ClusterError
from pellucid.cluster.ray_job import LockedProbe, check_shared, check_version
from pellucid.cluster.ray_pool import JobResources, count_slots, job_environment
from pellucid.errors import InputError, is_out_of_memory
from pellucid.process_limits import memory_advice
from pellucid.version import __version__

if TYPE_CHECKING:
    from ray.data import Dataset

MAX_BLOCK_STARTS = 5
"""Maximum number of starts of a block whose process is killed."""
MAX_TASKS = 10_000
"""Number of tasks of Ray among which the blocks are divided, at most: each takes the driver a few milliseconds."""
BlockProcessor = Callable[[bytes], bytes]
"""Function from a block of the input to the finished block."""


class BlockJob(NamedTuple):
    """Processing of the blocks of a folder, as it is sent to the machines."""

    folder: BlockFolder
    make_processor: Callable[[int], BlockProcessor]
    """Function of the number of threads that loads the model, called once in each process: it can be pickled, and its
    paths are absolute."""
    resources: JobResources = JobResources()
    """CPUs and GPUs of a process."""
    version: str = __version__
    """Version of Pellucid, which all machines must have."""
    machine: str = socket.gethostname()
    """Machine of the command, for messages."""


class BlockWorker:
    """Processes blocks in a process of a machine: the class that Ray Data calls with the numbers of blocks."""

    def __init__(self, job: BlockJob) -> None:
        """Keep the job. The model is loaded with the first block, so that its errors are reported like those of blocks.

        Args:
            job: Processing of the blocks.
        """
        self.job = job
        self.processor: BlockProcessor | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Process blocks, and write the finished ones to the folder.

        Args:
            batch: Runs of blocks as `divide_numbers` returns them: first numbers as "start", and those after the last
                ones as "stop".

        Returns:
            The numbers, and the lines of the user's error of each block as JSON, "" for a finished one.
        """
        runs = zip(batch["start"], batch["stop"], strict=True)
        numbers = [number for start, stop in runs for number in range(int(start), int(stop))]
        return {"number": numbers, "error": [self._process(number) for number in numbers]}

    def _process(self, number: int) -> str:
        """Process a block; return the lines of the user's error as JSON, "" if there is none."""
        try:
            if self.processor is None:
                self._check_machine()
            if not self.job.folder.is_finished(number):
                self._process_unfinished(number)
            return ""
        except InputError as error:
            return json.dumps(list(map(str, error.args)))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return json.dumps([f"out of memory on the machine {socket.gethostname()}; {memory_advice()}"])

    def _check_machine(self) -> None:
        """Raise `InputError` if this machine has another version, or does not share the folder with its locks."""
        check_version(self.job.version)
        path = self.job.folder.path
        check_shared(LockedProbe(path / LOCK, path, self.job.machine))

    def _process_unfinished(self, number: int) -> None:
        """Process a block, unless it was started too often."""
        folder = self.job.folder
        if not folder.is_in_use():  # the command has ended without this machine, which was cut off from it
            return
        if folder.count_attempt(number) > MAX_BLOCK_STARTS:
            raise ClusterError(
                f"block {number + 1}: its process was killed {MAX_BLOCK_STARTS} times, perhaps for lack of memory; "
                "start Ray with fewer CPUs per machine (ray start --num-cpus N)"
            )
        if self.processor is None:
            threads = self.job.resources.cpus
            threadpool_limits(threads)
            self.processor = self.job.make_processor(threads)
        try:
            finished = self.processor(folder.read_input(number))
        except msgspec.DecodeError:
            raise folder.damage_error(number) from None
        if folder.is_in_use():
            folder.write_output(number, finished)
            folder.reset_attempts(number)


def fit_resources(resources: JobResources) -> JobResources:
    """Return the resources of a process, limited to the CPUs of the largest machine of the cluster.

    Args:
        resources: CPUs and GPUs that a process would use.

    Raises:
        ClusterError: No machine of the cluster has a CPU and the GPUs.
    """
    for cpus in range(resources.cpus, 0, -1):
        if count_slots(fitting := resources._replace(cpus=cpus)):
            return fitting
    missing = "CPU and GPU (--device cuda)" if resources.gpus else "CPU"
    raise ClusterError(f"no machine of the Ray cluster has a {missing}, which each process needs")


def process_blocks(job: BlockJob, numbers: Collection[int], num_processes: int) -> Iterator[int]:
    """Process blocks on the machines of the cluster to which this process is connected.

    Args:
        job: Processing of the blocks; finished ones are written to its folder.
        numbers: Numbers of the blocks, in ascending order.
        num_processes: Number of processes.

    Yields:
        The number of each block as it is finished, in any order.

    Raises:
        InputError: A user's error in a block, that of the first such block; the blocks before it are finished then. Or
            a machine does not share the folder, has another version of Pellucid, or its processes die again and again.
    """
    unfinished, failed = BlockNumbers(numbers), dict[int, str]()
    for row in _dataset(job, numbers, num_processes).iter_rows():
        number, error = int(row["number"]), str(row["error"])
        unfinished.discard(number)
        if error:
            failed[number] = error
        else:
            yield number
        if failed and unfinished and min(failed) < next(iter(unfinished)):  # a block before it may still fail
            break
    if failed:
        raise InputError(*json.loads(failed[min(failed)]))


def divide_numbers(numbers: Iterable[int], max_length: int) -> list[dict[str, int]]:
    """Return runs of consecutive numbers, each as a dict with its first number and the one after its last number.

    Without finished blocks, there are as many runs as tasks, however many blocks there are.

    Args:
        numbers: Numbers of blocks, in ascending order.
        max_length: Maximum number of blocks of a run.
    """
    runs = list[dict[str, int]]()
    for number in numbers:
        if runs and number == runs[-1]["stop"] and number - runs[-1]["start"] < max_length:
            runs[-1]["stop"] = number + 1
        else:
            runs.append({"start": number, "stop": number + 1})
    return runs


def _dataset(job: BlockJob, numbers: Collection[int], num_processes: int) -> "Dataset":
    """Return the data set whose rows are the numbers of the finished blocks, with their errors."""
    import ray.data
    from ray.data import ActorPoolStrategy, DataContext

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # else it describes each execution on standard error
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_no_progress_timeout_s = -1  # else it fails after 30 minutes without free CPUs, or of a long block
    runs = divide_numbers(numbers, -(-len(numbers) // MAX_TASKS))
    rows = ray.data.from_items(runs, override_num_blocks=min(len(runs), MAX_TASKS))
    return rows.map_batches(
        BlockWorker,
        batch_size=None,
        fn_constructor_args=(job,),
        compute=ActorPoolStrategy(size=num_processes, max_tasks_in_flight_per_actor=2),
        num_cpus=job.resources.cpus,
        num_gpus=job.resources.gpus or None,
        runtime_env={"env_vars": job_environment()},
    )
