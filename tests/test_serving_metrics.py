"""Metrics are written in the text format of Prometheus."""

from pellucid.serving.metrics import ROWS_BUCKETS, ServiceMetrics


def test_counters_gauges_and_histograms() -> None:
    metrics = ServiceMetrics()
    metrics.count("pellucid_requests_total", {"path": "/v1/predict", "status": "200"})
    metrics.count("pellucid_requests_total", {"path": "/v1/predict", "status": "200"}, 2)
    for rows in (1.0, 2.0, 3.0, 1000.0):
        metrics.observe("pellucid_batch_rows", {"model": "m"}, rows)
    text = metrics.format({"pellucid_queued_rows": {(("model", "m"),): 7.0}})
    lines = text.splitlines()
    assert text.endswith("\n") and "# TYPE pellucid_requests_total counter" in lines
    assert 'pellucid_requests_total{path="/v1/predict",status="200"} 3' in lines
    assert 'pellucid_queued_rows{model="m"} 7' in lines
    buckets = [line for line in lines if line.startswith("pellucid_batch_rows_bucket")]
    assert [int(line.split()[-1]) for line in buckets] == [1, 2, *[3] * (len(ROWS_BUCKETS) - 2), 4]
    assert buckets[-1].startswith('pellucid_batch_rows_bucket{model="m",le="+Inf"}')
    assert lines[-2:] == ['pellucid_batch_rows_sum{model="m"} 1006', 'pellucid_batch_rows_count{model="m"} 4']


def test_values_have_all_their_digits() -> None:
    """Regression test: sums had six digits, so that they did not grow any more."""
    metrics = ServiceMetrics()
    for rows in (2_000_000.0, 3.0, 0.0625):
        metrics.observe("pellucid_batch_rows", {"model": "m"}, rows)
    lines = metrics.format({"pellucid_queued_rows": {(("model", "m"),): 1_234_567.0}}).splitlines()
    assert 'pellucid_batch_rows_sum{model="m"} 2000003.0625' in lines
    assert 'pellucid_queued_rows{model="m"} 1234567' in lines


def test_values_of_labels_are_escaped() -> None:
    metrics = ServiceMetrics()
    metrics.count("pellucid_rows_total", {"model": 'a"b\\c\nd'})
    assert 'pellucid_rows_total{model="a\\"b\\\\c\\nd"} 1' in metrics.format({}).splitlines()


def test_each_metric_has_one_header() -> None:
    metrics = ServiceMetrics()
    for status in ("200", "400"):
        metrics.count("pellucid_requests_total", {"path": "/", "status": status})
    assert metrics.format({}).count("# HELP pellucid_requests_total ") == 1
