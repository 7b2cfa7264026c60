"""A search with a PostgreSQL database: several commands, one that dies, a server that starts again, and errors.

Each test has a database of its own on a server that the module starts.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import run_pellucid, usage_error_message
from search_commands import SearchCommand, read_events, start_search, tiny_request, wait_for
from trained_runs import copy_task_run, training_flags

from pellucid.errors import ConfigError, RunError

pytest.importorskip("optuna")
pytest.importorskip("psycopg")
pytest.importorskip("pwd")

import pwd

import optuna
import psycopg

from pellucid.tuning import database
from pellucid.tuning.database import DatabaseStorage, parse_database_url
from pellucid.tuning.search import StudyRequest, tune
from pellucid.tuning.space import RangeDimension, SearchSpace, describe_space
from pellucid.tuning.study import EndedTrial, StudySettings, SuggestedTrial, TrialLostError, TuningStudy

PASSWORD = "pass{w}rd%"
"""Password with characters that have a meaning in URLs and in Optuna's templates of URLs."""
ENCODED = "pass{w}rd%25"
SPACE = SearchSpace((RangeDimension("training.learning_rate", 0.001, 0.1, None, True),), ())
PROGRAMS = os.pathsep.join([os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))])
"""Folders of the programs of the server, which Debian does not put on the path."""
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="starts a server on Linux"),
    pytest.mark.skipif(shutil.which("initdb", path=PROGRAMS) is None, reason="needs initdb and pg_ctl of PostgreSQL"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # a fork of a process with threads
]


class Server(NamedTuple):
    """A PostgreSQL server on a Unix socket, which runs as a user without privileges."""

    folder: Path
    user: str

    def run(self, *arguments: object) -> None:
        """Run a program of the server, and check that it succeeds."""
        account = pwd.getpwnam(self.user)
        is_root = os.geteuid() == 0
        command = [shutil.which(str(arguments[0]), path=PROGRAMS) or "", *map(str, arguments[1:])]
        with (self.folder / "output").open("w+") as output:  # the server would keep a pipe open
            result = subprocess.run(
                command,
                cwd=self.folder,
                env={"PATH": PROGRAMS, "LC_ALL": "C"},
                stdout=output,
                stderr=output,
                check=False,
                user=account.pw_uid if is_root else None,
                group=account.pw_gid if is_root else None,
                extra_groups=[] if is_root else None,
            )
            output.seek(0)
            assert result.returncode == 0, output.read()

    def start(self) -> None:
        """Start the server."""
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=40"
        log = self.folder / "log"
        self.run("pg_ctl", "start", "-w", "-t", 120, "-D", self.folder / "data", "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server."""
        self.run("pg_ctl", "stop", "-w", "-t", 120, "-m", mode, "-D", self.folder / "data")

    def url(self, name: str, password: str = ENCODED) -> str:
        """Return the URL of a database."""
        return f"postgresql://owner:{password}@/{name}?host={self.folder}"

    def create(self, name: str) -> str:
        """Create a database; return its URL."""
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, name: str, statement: str) -> None:
        """Execute a statement in a database."""
        host = str(self.folder)
        with psycopg.connect(user="owner", password=PASSWORD, dbname=name, host=host, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-database-", dir="/tmp"))  # a short path, for the socket
    folder.chmod(0o755)
    started = Server(folder, "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, started.user)
        (folder / "password").write_text(PASSWORD)
        options = ("-N", "-E", "UTF8", "-A", "scram-sha-256", "-U", "owner", "--no-instructions")
        started.run("initdb", "-D", folder / "data", "--pwfile", folder / "password", *options)
        started.start()
        yield started
        with suppress(AssertionError):  # a test has stopped it and failed
            started.stop("immediate")
    finally:
        shutil.rmtree(folder)


OPENED: list[DatabaseStorage] = []
"""Storages of the present test."""


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take a process for dead after four seconds; close all storages at the end of a test."""
    monkeypatch.setattr(database, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(database, "GRACE_SECONDS", 4)
    yield
    while OPENED:
        OPENED.pop().close()


def connect(url: str, name: str = "pellucid") -> DatabaseStorage:
    """Return the storage of a study, which is closed at the end of the test."""
    OPENED.append(DatabaseStorage(parse_database_url(url), name))
    return OPENED[-1]


SETTINGS = StudySettings(SPACE, "loss", 3, "none", 4)


def open_study(url: str, name: str = "pellucid") -> TuningStudy:
    """Open the study of a database, as a search does."""
    study = TuningStudy(connect(url, name), SETTINGS)
    assert study.check_description({"data": "0", "settings": {"seed": 3}, "space": describe_space(SPACE)}) == []
    study.enqueue_first({"training.learning_rate": 0.01})
    return study


def is_never_busy(number: int) -> bool:
    return False


@pytest.mark.slow
def test_processes_take_different_trials_and_one_takes_that_of_a_dead_one(server: Server) -> None:
    url = server.create("different")
    first, second = open_study(url), open_study(url)
    claimed = [study.claim_trial(3, is_never_busy) for _ in range(2) for study in (first, second)]
    assert [trial and trial.number for trial in claimed] == [0, 1, 2, None]
    assert first.running_elsewhere() == {1} and second.running_elsewhere() == {0, 2}
    time.sleep(5)  # longer than the grace period: heartbeats show that both live
    assert first.claim_trial(3, is_never_busy) is None
    assert isinstance(second.storage, DatabaseStorage) and second.storage._heartbeats is not None
    second.storage._heartbeats.close()  # as if the process had died
    assert first.claim_trial(3, is_never_busy) is None
    assert wait_for_trial(first) == claimed[1]
    assert first.claim_trial(3, is_never_busy) is None
    with pytest.raises(TrialLostError):
        second.report(1, 1, 0.5)
    first.release_trials([2])
    third = open_study(url)
    assert third.claim_trial(3, is_never_busy) == claimed[2]


def wait_for_trial(study: TuningStudy) -> SuggestedTrial | None:
    """Return the next trial that a process takes; None if it takes none for half a minute."""
    for _ in range(60):
        if suggested := study.claim_trial(3, is_never_busy):
            return suggested
        time.sleep(0.5)
    return None


@pytest.mark.slow
def test_answer_that_was_lost_is_not_recorded_twice(server: Server) -> None:
    url = server.create("answers")
    study = open_study(url)
    trial = study.ask()
    ended = EndedTrial(0, "finished", 0.5, "", 1.0, trial.values)
    study.record_end(ended)
    study.record_end(ended)
    assert study.results().ended == [ended] and study.results().best == ended
    number = study.ask().number
    del study.own_trials[number]  # as if an error had followed
    again = study.claim_trial(2, is_never_busy)
    assert again is not None and again.number == number


def database_request(folder: Path, name: str, url: str, trials: int) -> StudyRequest:
    """Return a search with a database, in a folder of its own."""
    request = tiny_request(folder, trials, folder / name)
    return request._replace(storage=DatabaseStorage(parse_database_url(url), "pellucid"))


def list_numbers(command: SearchCommand, event: str) -> list[int]:
    """Return the numbers of the trials in the events of a kind."""
    return [each["number"] for each in read_events(command.events) if each["event"] == event]


@pytest.mark.slow
def test_searches_survive_a_restart_of_the_server_and_the_death_of_one(server: Server, tmp_path: Path) -> None:
    url = server.create("restart")
    tiny_request(tmp_path, 6)  # writes the data
    commands = [
        start_search(partial(database_request, tmp_path, name, url, 6), tmp_path / f"{name}.jsonl")
        for name in ("first", "second")
    ]
    first, second = commands
    for command in commands:
        wait_for(lambda command=command: bool(list_numbers(command, "TrialStarted")), command.process)  # type: ignore[misc]
    server.stop()
    wait_for(lambda: "StudyUnreachable" in first.events.read_text(), first.process)
    time.sleep(5)  # longer than the grace period
    server.start()
    count = len(list_numbers(first, "TrialStarted"))
    wait_for(lambda: len(list_numbers(first, "TrialStarted")) > count, first.process)
    assert not [name for command in commands for name in list_numbers(command, "TrialLost")]
    os.kill(first.process.pid or 0, signal.SIGKILL)
    first.process.join(60)
    second.process.join(300)
    assert second.process.exitcode == 0
    started = Counter(list_numbers(first, "TrialStarted") + list_numbers(second, "TrialStarted"))
    repeated = [number for number, times in started.items() if times > 1]
    assert sorted(started) == list(range(6)) and max(started.values()) == 2
    assert repeated == list_numbers(first, "TrialStarted")[-1:]
    assert sorted(list_numbers(first, "EndedTrial") + list_numbers(second, "EndedTrial")) == list(range(6))
    results = json.loads((tmp_path / "second" / "trials.json").read_text("utf-8"))["trials"]
    assert [trial["state"] for trial in results] == ["finished"] * 6 and (tmp_path / "second" / "best.toml").exists()
    study = TuningStudy(connect(url), SETTINGS)
    assert study.results().best == study.results().ended[results[0]["number"]]


@pytest.mark.slow
def test_errors_are_one_sentence_without_the_password(server: Server, tmp_path: Path) -> None:
    url = server.create("errors")
    trained = copy_task_run()
    command = ["tune", trained.files.train, "--valid", trained.files.valid, "--run", tmp_path / "out"]
    command += [*training_flags(trained.config), "--trials", 1, "--storage"]
    nowhere = f"{url}/nowhere"
    for wrong, expected in (
        (server.url("errors", "wrong"), "password authentication failed"),
        (server.url("nothing"), 'database "nothing" does not exist'),
        (nowhere, "No such file or directory"),
        (f"{url}&nonsense=1", 'invalid connection option "nonsense"'),
        ("mysql://owner:secret@host/name", "expected a URL postgresql://"),
        ("postgresql://owner:sec@ret@host/name", "expected a URL postgresql://"),
        ("postgresql://owner:secret", "expected a URL postgresql://"),
    ):
        message = usage_error_message(run_pellucid(*command, wrong))
        assert expected in message and "\n" not in message, message
        assert not [text for text in (PASSWORD, ENCODED, "wrong", "secret", "ret@") if text in message]


def test_tables_of_other_programs_are_refused_unchanged(server: Server) -> None:
    url = server.create("another")
    server.execute("another", "CREATE TABLE alembic_version (version_num varchar(32))")
    with pytest.raises(RunError, match="holds tables of another program; name another database"):
        open_study(url)
    with psycopg.connect(user="owner", password=PASSWORD, dbname="another", host=str(server.folder)) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("alembic_version",)]


def test_other_studies_of_the_database_are_refused(server: Server, tmp_path: Path) -> None:
    url = server.create("studies")
    study = open_study(url)
    assert study.check_description({"data": "1", "settings": {"seed": 4}, "space": []}) == [
        "data",
        "space",
        "settings (seed)",
    ]
    assert isinstance(study.storage, DatabaseStorage)
    foreign = optuna.create_study(storage=study.storage._storage, study_name="foreign")
    foreign.add_trial(optuna.trial.create_trial(value=0.0))
    with pytest.raises(RunError, match=r"the study 'foreign' in .* is of another program; give another --study-name"):
        open_study(url, "foreign")
    with pytest.raises(RunError, match="has another metric"):
        TuningStudy(connect(url), SETTINGS._replace(metric="exact_match"))
    request = tiny_request(tmp_path, 1)
    with pytest.raises(RunError, match=r"postgresql://owner:\*\*\*@/studies holds a study with other data"):
        next(tune(request._replace(storage=connect(url))))


def test_folder_of_another_study_is_refused(server: Server, tmp_path: Path) -> None:
    url, request = server.create("folders"), tiny_request(tmp_path, 1)
    search = tune(request._replace(storage=connect(url, "one")))
    next(search)
    search.close()
    with pytest.raises(RunError, match="holds the trials of another study of a database; name a new folder"):
        next(tune(request._replace(storage=connect(url, "other"))))
    with pytest.raises(RunError, match="holds the trials of a study in a database: give --storage"):
        next(tune(request))
    alone = tiny_request(tmp_path, 1, tmp_path / "alone")
    search = tune(alone)
    next(search)
    search.close()
    with pytest.raises(RunError, match="holds the trials of a study without --storage"):
        next(tune(alone._replace(storage=connect(url, "one"))))


@pytest.mark.parametrize(
    ("text", "host", "password"),
    [
        ("postgresql://user@host/name", "host", None),
        ("postgresql+psycopg://user:a%40b@host:1/name?sslmode=require", "host", "a@b"),
        ("postgresql:///name?host=/run/postgresql", None, None),
    ],
)
def test_urls(text: str, host: str | None, password: str | None) -> None:
    url = parse_database_url(text)
    assert (url.drivername, url.host, url.password, url.database) == ("postgresql+psycopg", host, password, "name")
    storage = DatabaseStorage(url, "pellucid")
    assert "a@b" not in storage.place and "?" not in storage.place
    assert storage._url.query.get("sslmode", "require") == "require" and "timezone" in str(
        storage._url.query["options"]
    )


@pytest.mark.parametrize("text", ["", "name", "sqlite:///name", "postgresql+psycopg2://user@host/name", "postgresql:"])
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a URL postgresql://"):
        parse_database_url(text)
