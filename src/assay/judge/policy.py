"""What a judgement demands: one frozen record, carried in the verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Gates, limits and budgets of one judgement."""

    nominal_calls: int = 3
    """Verified calls at the size the problem is scored at, each on fresh contents and fresh weights."""
    other_calls: int = 2
    """Verified calls on every other case."""
    large_bytes: int = 2 << 30
    """A case whose outputs take more than this gets two calls, not more."""
    derive_hidden: bool = True
    """Invent hidden cases beside those the problem declares."""
    most_input_bytes: int = 0
    """Scale problems down whose inputs take more; 0 for whatever fits on the device."""
    require_full_sandbox: bool = False
    """Refuse to run where a layer of the sandbox is missing, instead of saying so in the verdict."""
    allow_flawed: bool = False
    """Judge even where the problem cannot tell right from wrong; the verdict says so."""
    allow_tf32: bool = False
    """Accept TF32 in float32 products even if the problem does not declare it."""
    forbid_libraries: bool = False
    """Library code may do no work, even if the problem does not forbid it."""
    deep: bool = False
    """Have compute-sanitizer look at a few small cases as well; on a GPU alone."""
    speed: bool = True
    """Time it as well: gate 2."""
    rungs: tuple[str, ...] = ()
    """Baselines to climb; empty for all that make sense on the device."""
    processes_timed: int = 3
    """Fresh processes of the candidate, at least; more where the interval stays wide."""
    speed_budget_s: float = 1.0
    """Beyond the least number, no further process is started that would make a race take longer than this."""
    margin: float = 0.01
    """How far the interval of the ratio must clear 1 before a difference is called one."""
    force_busy: bool = False
    """Time even while somebody else uses the device; the verdict says so."""
    build_timeout_s: float = 300.0
    load_timeout_s: float = 300.0
    """Importing may compile: a torch extension takes a minute."""
    baseline_timeout_s: float = 600.0
    """A baseline's first call: compilation and tuning."""
    deep_timeout_s: float = 300.0
    """Each of compute-sanitizer's tools."""
    call_timeout_s: float = 60.0
    """A first call may compile; this is per call."""
    run_timeout_s: float = 900.0
    """All of a candidate's time together, from loading to the last answer."""
    memory_bytes: int = 8 << 30
    """Host memory the candidate's processes may take together."""
    scratch_bytes: int = 1 << 30
    processes: int = 256
