"""A study in a PostgreSQL database, for processes of machines that share no folder. Needs psycopg.

The lock of a study is an advisory lock of the server. It ends with the connection, and so with the process that holds
it. Each process records heartbeats of its trials, with the clock of the server (`optuna.storages.RDBStorage`). A trial
without a heartbeat for `GRACE_SECONDS` is abandoned. While the server is down, nobody can record one. So after its
start, and after a loss of the connection, a process waits that long before it takes trials of others.
"""

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pellucid.errors import ConfigError, InputError, RunError, abbreviate_reason, quote
from pellucid.tuning.storage import PROCESS_KEY, StudyStorage, StudyUnreachableError

HEARTBEAT_SECONDS = 20
"""Seconds between two heartbeats of a trial."""
GRACE_SECONDS = 120
"""Seconds without a heartbeat after which a trial is abandoned."""
DRIVERS = ("postgresql", "postgresql+psycopg")
"""Beginnings of the URLs of databases."""
UNREACHABLE = (OperationalError, InterfaceError)
"""Errors of the driver after which the same operation may succeed later."""
LOCK_KEY = 0x70656C6C75636964
"""Number of the advisory lock of a database."""
ID_KEY = "id"
"""Attribute of a study: a random identifier, which folders of trials repeat."""
CONNECTION_SETTINGS = {
    "application_name": "pellucid",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""Settings of the client, which the URL may change: a server that is lost is noticed after about a minute."""
SESSION_SETTINGS = (
    "timezone=UTC",
    "lock_timeout=120s",
    "tcp_keepalives_idle=30",
    "tcp_keepalives_interval=10",
    "tcp_keepalives_count=3",
)
"""Settings of the server for the session: it notices after about a minute that a machine is lost, and ends its lock."""


def parse_database_url(text: str) -> URL:
    """Return the parsed URL of a PostgreSQL database, with the driver psycopg. Messages do not repeat it.

    Args:
        text: The URL: "postgresql://USER@HOST/DATABASE".

    Raises:
        ConfigError: It has another form.
    """
    url = None
    with suppress(SQLAlchemyError, ValueError):  # their messages may quote a part of the password
        url = make_url(text)
    if url is None or url.drivername not in DRIVERS or "@" in (url.host or ""):
        raise ConfigError(
            "--storage: expected a URL postgresql://USER:PASSWORD@HOST:PORT/DATABASE; write @, :, / and % in the "
            "password as %40, %3A, %2F and %25, or leave it out: it is read from ~/.pgpass"
        )
    return url.set(drivername="postgresql+psycopg")


class DatabaseStorage(StudyStorage):
    """Study in a PostgreSQL database, for any number of processes."""

    def __init__(self, url: URL, study_name: str) -> None:
        """Initialize without a connection.

        Args:
            url: Result of `parse_database_url`.
            study_name: Name of the study in the database.
        """
        self.title = self.place = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        self.advice = self.new_study = "give another --study-name, or another database"
        self.process = uuid.uuid4().hex
        self.study_name = study_name
        self.description = f"the study {quote(study_name)} in {self.place}"
        given = url.query.get("options", ())
        options = [given] if isinstance(given, str) else list(given)
        options += [f"-c {setting}" for setting in SESSION_SETTINGS]
        self._url = url.set(query={**CONNECTION_SETTINGS, **url.query, "options": " ".join(options)})
        self._engine = sqlalchemy.create_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None
        """Connection that holds the lock."""
        self._depth = 0
        self._heartbeats: _Heartbeats | None = None
        self._storage: RDBStorage | None = None
        self._study: optuna.Study | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the database in the block, and convert errors of the database."""
        with self._errors():
            if not self._depth:
                self._lock()
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if not self._depth:
                    self._disconnect()
                raise
            self._depth -= 1
            if not self._depth:
                self._execute(f"SELECT pg_advisory_unlock({LOCK_KEY})")

    def convert_error(self, error: Exception) -> RunError:
        """Return the error for one of Optuna or of the database.

        Args:
            error: The error.
        """
        if not isinstance(error, SQLAlchemyError | StorageInternalError):
            return super().convert_error(error)
        message = f"the database {self.place} cannot be used: {_error_text(error)}"
        is_unreachable = isinstance(error, UNREACHABLE) or isinstance(error.__cause__, UNREACHABLE)
        return StudyUnreachableError(message) if is_unreachable else RunError(message)

    def open_study(self, direction: StudyDirection, pruner: BasePruner) -> optuna.Study:
        """Create the tables and the study if they are missing, and open the study.

        Args:
            direction: Direction of a new study.
            pruner: The pruner.
        """
        self._check_tables()
        url = self._url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")  # Optuna formats it
        storage = RDBStorage(
            url,
            engine_kwargs={"pool_pre_ping": True},
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
        )
        self._storage = storage
        study = optuna.create_study(
            study_name=self.study_name, storage=storage, pruner=pruner, direction=direction, load_if_exists=True
        )
        if study.direction != direction:
            raise RunError(f"{self.description} has another metric; {self.advice}")
        if ID_KEY not in study.user_attrs:
            if study.get_trials(deepcopy=False):
                raise RunError(f"{self.description} is of another program; {self.advice}")
            study.set_user_attr(ID_KEY, uuid.uuid4().hex)
        self.study_id = str(study.user_attrs[ID_KEY])
        self._study = study
        self._heartbeats = _Heartbeats(storage)
        return study

    def find_abandoned(self, running: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials that no process has, or whose last heartbeat is older than `GRACE_SECONDS`.

        Args:
            running: Running trials that this process does not run.
        """
        assert self._storage is not None and self._study is not None and self._heartbeats is not None
        stale = set[int]()
        uptime = self._execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())")
        if uptime > GRACE_SECONDS and self._heartbeats.is_steady():
            stale = set(self._storage._get_stale_trial_ids(self._study._study_id))
        return [trial for trial in running if not trial.user_attrs.get(PROCESS_KEY) or trial._trial_id in stale]

    def start_heartbeat(self, trial_id: int) -> None:
        """Record a heartbeat of a trial now and every `HEARTBEAT_SECONDS`.

        Args:
            trial_id: Optuna's identifier of the trial.
        """
        assert self._storage is not None and self._heartbeats is not None
        self._storage.record_heartbeat(trial_id)
        self._heartbeats.trial_ids.add(trial_id)

    def stop_heartbeat(self, trial_id: int) -> None:
        """Record no more heartbeats of a trial.

        Args:
            trial_id: Optuna's identifier of the trial.
        """
        if self._heartbeats is not None:
            self._heartbeats.trial_ids.discard(trial_id)

    def touch(self) -> None:
        """Do nothing: the heartbeats show that this process lives."""

    def close(self) -> None:
        """End the heartbeats, and close all connections."""
        if self._heartbeats is not None:
            self._heartbeats.close()
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
        self._disconnect()

    def _lock(self) -> None:
        """Wait for the lock of the database, on a connection of its own; a lost one is opened again."""
        query = f"SELECT pg_advisory_lock({LOCK_KEY})"
        if self._connection is not None:
            with suppress(DBAPIError):
                self._execute(query)
                return
        self._connection = self._engine.connect()
        self._execute(query)

    def _execute(self, query: str) -> float:
        """Return the number that a query answers, on the connection that holds the lock; 0 for none."""
        assert self._connection is not None
        try:
            return float(self._connection.execute(sqlalchemy.text(query)).scalar() or 0)
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        """Close the connection, and with it the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.close()

    def _check_tables(self) -> None:
        """Raise `RunError` for tables of another program, before any is created."""
        assert self._connection is not None
        names = set(sqlalchemy.inspect(self._connection).get_table_names())
        if "version_info" not in names and names & {"alembic_version", "studies", "trials"}:
            raise RunError(f"{self.place} holds tables of another program; name another database")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the database in the block to `RunError`."""
        try:
            yield
        except InputError:
            raise
        except (SQLAlchemyError, StorageInternalError) as error:
            raise self.convert_error(error) from error


def _error_text(error: Exception) -> str:
    """Return the first line of the message of the server or its driver."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    original = cause.orig if isinstance(cause, DBAPIError) else None
    return abbreviate_reason(original if isinstance(original, Exception) else error)


class _Heartbeats:
    """Heartbeats of the trials that this process runs, recorded by a thread."""

    def __init__(self, storage: RDBStorage) -> None:
        """Start the thread.

        Args:
            storage: Storage of the study.
        """
        self.storage = storage
        self.trial_ids = set[int]()
        """Optuna's identifiers of the trials."""
        self._answered_at = time.monotonic()
        self._answers_since = float("-inf")
        """Time since which the server has answered without a gap; minus infinity before the first gap."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_steady(self) -> bool:
        """Return whether the server has answered for `GRACE_SECONDS`: others could then record their heartbeats."""
        now = time.monotonic()
        return now - self._answered_at <= 2 * HEARTBEAT_SECONDS and now - self._answers_since > GRACE_SECONDS

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(HEARTBEAT_SECONDS)

    def _run(self) -> None:
        """Record heartbeats until the end."""
        while not self._closed.wait(HEARTBEAT_SECONDS):
            with suppress(Exception):  # the main thread meets the same error and reports it
                self._record()

    def _record(self) -> None:
        """Record one heartbeat of each trial, and note that the server answers."""
        with self.storage.engine.connect() as connection:
            connection.execute(sqlalchemy.text("SELECT 1"))
        for trial_id in sorted(self.trial_ids):
            self.storage.record_heartbeat(trial_id)
        now = time.monotonic()
        if now - self._answered_at > 2 * HEARTBEAT_SECONDS:
            self._answers_since = now
        self._answered_at = now
