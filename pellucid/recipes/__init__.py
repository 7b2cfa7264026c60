"""Reference experiments, each from data to report."""
