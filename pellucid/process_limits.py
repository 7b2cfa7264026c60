"""Limits that the system sets to the memory of this process (ulimit)."""


def process_limit(name: str) -> int | None:
    """Return a limit of this process in bytes; None if there is none, or if the system has no such limits (Windows).

    Args:
        name: Name of the limit in the module `resource`, such as "RLIMIT_AS".
    """
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(getattr(resource, name))
    return None if limit == resource.RLIM_INFINITY else limit


def memory_advice() -> str:
    """Return what to do where there is not enough memory; it names the limit of the address space, if there is one."""
    limit = process_limit("RLIMIT_AS")
    advice = "reduce training.batch_size, search.batch_size or size"
    if limit is None:
        return advice
    return (
        f"the address space of this process, libraries included, is limited to {limit / 2**20:,.0f} MiB (ulimit -v): "
        f"raise this limit, or {advice}"
    )
