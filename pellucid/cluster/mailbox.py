"""Messages between the jobs of a cluster and the process that started them, in an actor of Ray on its machine.

A job exchanges messages a few times a second. So the process that started it learns of its progress, and the job of a
request to stop. A job that Ray has started again elsewhere, because its machine did not answer, has a new attempt; the
old one ends at its next exchange of messages, or after `MAX_SILENCE` seconds without an answer.

Ray repeats a call whose answer was lost. So both sides number the messages, and none is lost or doubled.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from pellucid.cluster.ray_connection import ray_errors_as_messages

Reply = Literal["continue", "stop", "superseded"]
"""Answer to a job: go on, stop early, or end at once, because another attempt of the job has begun."""


class JobMessage(NamedTuple):
    """A message of a job."""

    submission_number: int
    """Number of the submission."""
    content: bytes
    """The message, serialized: the actor need not know its type, and so imports none of the packages of a training."""


class Mailbox:
    """Messages of jobs, and requests to stop them. Ray runs one call at a time."""

    def __init__(self) -> None:
        """Initialize without messages."""
        self.messages = list[JobMessage]()
        """Messages that the process which started the jobs has not confirmed."""
        self.num_confirmed = 0
        """Number of messages before these."""
        self.num_received = dict[int, int]()
        """Number of messages of the last attempt of each job."""
        self.failure: bytes | None = None
        """First failure of a worker of a group, serialized."""
        self.last_call_at = dict[int, float]()
        """Time of the last call of each job."""
        self.attempts = dict[int, int]()
        """Number of attempts of each job that has begun."""
        self.machines = dict[int, str]()
        """Node of Ray where the last attempt of each job runs."""
        self.stopping = set[int]()
        """Jobs that are to stop."""

    def begin(self, submission_number: int, machine: str) -> int:
        """Record that a job begins, and return the number of its attempt, from 1.

        Args:
            submission_number: Number of the submission.
            machine: Node of Ray where it begins.
        """
        self.attempts[submission_number] = self.attempts.get(submission_number, 0) + 1
        self.machines[submission_number] = machine
        self.num_received[submission_number] = 0
        self.last_call_at[submission_number] = time.monotonic()
        return self.attempts[submission_number]

    def exchange(self, submission_number: int, attempt: int, num_sent: int, contents: Sequence[bytes]) -> Reply:
        """Take messages of a job, and return what it is to do. Messages of an old attempt are dropped.

        Args:
            submission_number: Number of the submission.
            attempt: Number of the attempt that sends them.
            num_sent: Number of messages that this attempt has sent before; a call that Ray repeats adds none.
            contents: The messages.
        """
        if attempt != self.attempts.get(submission_number):
            return "superseded"
        self.last_call_at[submission_number] = time.monotonic()
        new = contents[max(0, self.num_received[submission_number] - num_sent) :]
        self.num_received[submission_number] += len(new)
        self.messages += [JobMessage(submission_number, content) for content in new]
        return "stop" if submission_number in self.stopping else "continue"

    def request_stop(self, submissions: Iterable[int]) -> list[int]:
        """Ask jobs to stop; return those that have not begun.

        Args:
            submissions: Numbers of the submissions.
        """
        self.stopping.update(submissions)
        return [submission_number for submission_number in submissions if submission_number not in self.attempts]

    def list_machines(self) -> dict[int, str]:
        """Return the node of Ray where the last attempt of each job has begun, by the numbers of the submissions."""
        return self.machines

    def clear_machine(self, submission_number: int) -> None:
        """Forget where a job has begun, because it is submitted again.

        Args:
            submission_number: Number of the submission.
        """
        self.machines.pop(submission_number, None)

    def list_silences(self) -> dict[int, float]:
        """Return the seconds since the last call of each job that has begun, by the numbers of the submissions."""
        now = time.monotonic()
        return {submission_number: now - called_at for submission_number, called_at in self.last_call_at.items()}

    def take_messages(self, num_taken: int) -> list[JobMessage]:
        """Return the messages that the caller has not taken yet, in their order.

        Args:
            num_taken: Number of messages that it has taken before, which are removed.
        """
        del self.messages[: num_taken - self.num_confirmed]
        self.num_confirmed = num_taken
        return list(self.messages)

    def report_failure(self, failure: bytes) -> None:
        """Record the failure of a worker of a group; of several, the first counts.

        Args:
            failure: The last event of the worker, serialized.
        """
        self.failure = self.failure or failure

    def read_failure(self) -> bytes | None:
        """Return the failure of a worker of a group; None if none has failed."""
        return self.failure


class DriverMailbox:
    """A mailbox on this machine, as the process that starts the jobs uses it; it ends with the block."""

    def __init__(self) -> None:
        """Initialize without starting the actor."""
        self.handle: Any = None
        """Handle of the actor, for the jobs."""
        self._num_taken = 0

    def __enter__(self) -> "DriverMailbox":
        """Start the actor, on this machine, and return the mailbox."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with ray_errors_as_messages():
            # Ray would start an actor without CPUs on any machine, whose end would end the command.
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            actor = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here, max_task_retries=-1)
            self.handle = actor.remote()
        self.take_messages()  # it runs, before jobs expect its answers
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the actor."""
        import ray

        with suppress(Exception):  # the cluster may be gone
            ray.kill(self.handle)

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 (the value of the method)
        """Return the answer of a method of the mailbox.

        Args:
            method: Name of the method of `Mailbox`.
            *arguments: Its arguments.

        Raises:
            ClusterError: The connection to the cluster is lost.
        """
        import ray

        with ray_errors_as_messages():
            return ray.get(getattr(self.handle, method).remote(*arguments))

    def take_messages(self) -> list[JobMessage]:
        """Return the messages that have arrived since the last call, in their order."""
        messages: list[JobMessage] = self.call("take_messages", self._num_taken)
        self._num_taken += len(messages)
        return messages
