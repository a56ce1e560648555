"""A cluster of Ray on this machine, which further nodes may join."""

from __future__ import annotations

from typing import Any

import pytest


def new_cluster(cpus: int, gpus: int) -> Any:
    """Its first node has so many, whatever the machine has."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    nice = {"worker_niceness": 0}  # Ray's own are too nice to get on beside other tests
    head = {"num_cpus": cpus, "num_gpus": gpus, "_system_config": nice}
    return cluster_utils.Cluster(initialize_head=True, head_node_args=head)
