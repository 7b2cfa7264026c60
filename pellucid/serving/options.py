"""Options of the service: limits with their defaults."""

from dataclasses import dataclass

MAX_OUTPUTS = 64
"""Maximum beam size, and number of outputs, of a request."""


@dataclass(frozen=True)
class ServiceOptions:
    """Limits on requests, and the intervals of the service."""

    max_rows: int = 256
    """Maximum number of rows of a request, and of rows decoded together."""
    max_symbols: int = 1000
    """Maximum number of source symbols, and of target symbols, of a row."""
    max_body_bytes: int = 1 << 20
    """Maximum size of a request body, in bytes."""
    max_queued_rows: int = 1024
    """Maximum number of rows that wait for each model."""
    timeout: float = 30.0
    """Seconds from the arrival of a request to its answer."""
    drain_timeout: float = 30.0
    """Seconds for which a shutdown waits for queued requests."""
    reload_interval: float = 2.0
    """Polling interval of the run folders, in seconds; 0 disables reloading."""
    workers: int = 1
    """Number of worker processes of each model."""
    threads: int = 1
    """Number of threads of each worker process."""
