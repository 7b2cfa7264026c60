"""HTTP service: predictions of several models as JSON, with batches, limits and a worker process for each model.

Imports: alignment, data, decoding, errors, files, http_requests, kernels, model, reporting, run_folder, version,
    worker_pool.
Start with: application.py.

A request is parsed by `application`, waits in the `BatchQueue` of its model, and is decoded by the worker process of
that model (`decoding_worker`). No timer delays a batch: requests that arrive while a batch is decoded form the next.
"""
