"""Several machines, by Ray (the extra `ray`).

Imports: dependencies, errors, file_lock, files, folder_lock, process_limits, version, worker_pool.
Start with: ray_connection.py.

* ray_connection: connection to a cluster that runs, or a cluster of this machine alone.
* ray_pool: jobs as tasks of the cluster, in place of the worker processes of `pellucid.worker_pool`.
* ray_group: one job of several connected workers, through Ray Train.
* network_interface: address by which these workers connect.
* ray_job: one job in a worker process of the cluster.
* mailbox: messages between the jobs and the process that has started them.
* block_folder: blocks of the input of a command and the finished ones, as files of a folder that all machines share.
* block_pool: processing of these blocks by the machines of a cluster, through Ray Data.
"""
