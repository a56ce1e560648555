"""NVML's view of the device, the ceilings of a GPU, and who counts as somebody else on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

from assay.speed.ceilings import KINDS, Ceilings, measure_ceilings
from assay.speed.gpu_state import GpuState, count_others, cuda_attribute, driver_version, read_gpu_state

pytestmark = pytest.mark.gpu
HOLDS_A_CONTEXT = "import torch; torch.ones(1, device='cuda'); print('ready', flush=True); input()"


@pytest.fixture(scope="module")
def gpu(device: str) -> torch.device:
    torch.ones(1, device=device)  # a context, so that NVML lists this process
    return torch.device(device, 0)


@pytest.fixture(scope="module")
def state(gpu: torch.device) -> GpuState:
    found = read_gpu_state(gpu, frozenset({os.getpid()}))
    if found is None:
        pytest.skip("no NVML here")
    return found


@pytest.fixture(scope="module")
def ceilings(gpu: torch.device) -> Ceilings:
    return measure_ceilings(gpu)


def test_readings_are_plausible(state: GpuState) -> None:
    assert state.sm_clock_mhz is not None and state.max_sm_clock_mhz is not None
    assert 0 < state.sm_clock_mhz <= state.max_sm_clock_mhz
    assert state.memory_clock_mhz is None or state.memory_clock_mhz > 0
    assert state.temperature_c is None or 0 < state.temperature_c < 120
    assert state.power_w is None or 0 < state.power_w < 3000
    assert state.utilisation_percent is None or 0 <= state.utilisation_percent <= 100
    assert state.throttle_reasons is None or "idle" not in " ".join(state.throttle_reasons)


def test_a_device_without_an_index_is_the_current_one(state: GpuState) -> None:
    found = read_gpu_state(torch.device("cuda"), frozenset({os.getpid()}))
    assert found is not None and found.max_sm_clock_mhz == state.max_sm_clock_mhz


def test_the_driver_answers(gpu: torch.device, state: GpuState) -> None:
    assert "." in (driver_version() or "")
    assert cuda_attribute(-5, gpu) is None
    width_bits = cuda_attribute(37, gpu)
    assert width_bits is not None and width_bits >= 64


def test_our_own_threads_are_us(gpu: torch.device) -> None:
    numbers: list[int] = []
    known, release = threading.Event(), threading.Event()

    def stay() -> None:
        numbers.append(threading.get_native_id())
        known.set()
        release.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        assert known.wait(60)
        assert count_others(numbers, frozenset()) == 1
        assert count_others([*numbers, os.getpid()], frozenset({os.getpid()})) == 0
    finally:
        release.set()
        thread.join()


def test_another_process_counts_until_it_is_ours(gpu: torch.device, state: GpuState) -> None:
    unowned = read_gpu_state(gpu, frozenset())
    if unowned is None or not unowned.other_processes:
        pytest.skip("NVML does not show the processes of this namespace here")
    us = frozenset({os.getpid()})
    before = read_gpu_state(gpu, us)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_CONTEXT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        with_child = read_gpu_state(gpu, us)
        with_child_owned = read_gpu_state(gpu, us | {child.pid})
    finally:
        child.communicate("\n", timeout=60)
    assert before is not None and with_child is not None and with_child_owned is not None
    assert with_child.other_processes == (before.other_processes or 0) + 1
    assert with_child_owned.other_processes == before.other_processes


def test_ceilings_stay_under_their_peaks(ceilings: Ceilings) -> None:
    bandwidths = (ceilings.read_bytes_per_s, ceilings.copy_bytes_per_s, ceilings.write_bytes_per_s)
    assert min(bandwidths) > 0 and max(bandwidths) <= ceilings.peak_bytes_per_s
    assert {"float64", "float32", "tf32", "float16"} <= set(ceilings.flops_per_s) <= set(KINDS)
    assert all(0 < rate <= ceilings.peak_flops_per_s[kind] for kind, rate in ceilings.flops_per_s.items())
    assert ceilings.l2_bytes > 0 and ceilings.empty_kernel_us > 0


def test_narrower_types_multiply_faster(ceilings: Ceilings) -> None:
    """So that TF32 was on where it was meant to be, and off where not."""
    if torch.cuda.get_device_capability() not in {(8, 0), (9, 0), (10, 0)}:
        pytest.skip("only data-centre GPUs have TF32 well apart from float32")
    rates = ceilings.flops_per_s
    assert rates["float32"] < rates["tf32"] < rates["bfloat16"]


def test_measuring_leaves_the_process_as_it_was(gpu: torch.device, ceilings: Ceilings) -> None:
    random_state = torch.cuda.get_rng_state(gpu)
    held_bytes = torch.cuda.memory_allocated(gpu)
    before = torch.backends.cuda.matmul.allow_tf32
    measure_ceilings(gpu)
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert torch.cuda.memory_allocated(gpu) <= held_bytes + (64 << 20)  # cuBLAS keeps a workspace
    assert torch.equal(random_state, torch.cuda.get_rng_state(gpu))
