"""A cluster of Ray on this machine, which further nodes may join."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def new_cluster() -> Iterator[Any]:
    """Its first node has neither processors nor GPUs, so that it judges nothing."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    nice = {"worker_niceness": 0}  # Ray's own are too nice to get on beside other tests
    head = {"num_cpus": 0, "num_gpus": 0, "_system_config": nice}
    # Nobody looks at the cluster, reads its logs or asks for more nodes.
    head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def a_node(cluster: Any, *, cpus: int = 1, gpus: int = 0, **environment: str) -> Iterator[Any]:
    """One more, whose processes have this environment."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        node = cluster.add_node(num_cpus=cpus, num_gpus=gpus)
    cluster.wait_for_nodes()
    try:
        yield node
    finally:
        if node in cluster.worker_nodes:  # nobody has killed it
            cluster.remove_node(node)
