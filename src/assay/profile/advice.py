"""From what is known of a right candidate to where it stands and what to try: a pure function.

The regime says what the time goes into: moving bytes, arithmetic, waiting for either, or getting work
started. The rules (rules.py) are asked in order, and the first three that apply speak.

Not covered: whether a step would pay. Rules are what usually helps in such a place, and the judge decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.profile.facts import Facts, facts_of
from assay.profile.figures import choose_figures, microseconds
from assay.profile.rules import HOST_FACTOR, LAST_WORDS, OTHERWISE, RULES
from assay.records import Advice, Counters, Passed, Step, Verdict
from assay.records.profile import COMPUTE, LATENCY, LAUNCH, MEMORY, UNKNOWN

MOST_STEPS = 3
FULL_PERCENT = 60.0
"""A unit that is busy for so much of the time is what the rest waits for."""
NEAR_PERCENT = 50.0
MANY_KERNELS = 3
STARTING_PERCENT = 30.0
BOUND = {
    MEMORY: "Memory bound",
    COMPUTE: "Compute bound",
    LATENCY: "Latency bound",
    LAUNCH: "Launch bound",
    UNKNOWN: "Regime unknown",
}


def advise(verdict: Passed, counters: Counters | None = None) -> Advice:
    """Regime, figures and steps for a candidate that is right."""
    facts = facts_of(verdict, counters)
    regime, why = regime_of(facts)
    why += " (the machine was noisy: times are rough)" if facts.noisy else ""
    return Advice(regime, why, choose_figures(regime, facts), tuple(_steps(regime, facts)))


def advice_lines(verdict: Verdict | None, counters: Counters | None = None) -> list[str]:
    """The same in words, for whoever writes the next attempt; none of a candidate that is not right."""
    if not isinstance(verdict, Passed):
        return []
    advice = advise(verdict, counters)
    lines = [f"{BOUND[advice.regime]}: {advice.why}."]
    lines += [f"- {figure.name}: {figure.value} ({figure.meaning})" for figure in advice.figures]
    lines += ["What to try:"] if advice.steps else []
    return lines + [f"{k}. {step.action} ({step.reason}.)" for k, step in enumerate(advice.steps, 1)]


def regime_of(facts: Facts) -> tuple[str, str]:
    """What the time goes into, and how that is known."""
    if facts.percent is None and not facts.counted:
        return UNKNOWN, "it was not timed, or the work of the problem is not known"
    if why := _why_launch(facts):
        return LAUNCH, why
    if facts.counted:
        return _by_counters(facts)
    return _by_roofline(facts, facts.percent or 0.0)


def _why_launch(facts: Facts) -> str:
    few = facts.kernels < 2 and (facts.percent or 0.0) < STARTING_PERCENT
    if facts.bound == LATENCY and not few:
        return "there is so little work that starting it is most of it"
    if not facts.on_gpu or facts.kernels < MANY_KERNELS:
        return ""
    if facts.latency_us is not None and facts.latency_us > HOST_FACTOR * facts.device_us:
        latency, device = microseconds(facts.latency_us), microseconds(facts.device_us)
        return f"{facts.kernels} kernels take the host {latency} for {device} of work"
    if 0 < facts.busy_us < facts.device_us / 2:
        idle = 1 - facts.busy_us / facts.device_us
        return f"between its {facts.kernels} kernels the device stands still for {idle:.0%} of the time"
    return ""


def _by_counters(facts: Facts) -> tuple[str, str]:
    memory, sm = facts.counted.get("dram_percent", 0.0), facts.counted.get("sm_percent", 0.0)
    if max(memory, sm) < FULL_PERCENT:
        return LATENCY, f"memory is busy for {memory:.0f} %, arithmetic for {sm:.0f} %: neither is the limit"
    if memory >= sm:
        return MEMORY, f"memory is busy for {memory:.0f} % of its longest kernel"
    return COMPUTE, f"the multiprocessors are busy for {sm:.0f} % of its longest kernel"


def _by_roofline(facts: Facts, percent: float) -> tuple[str, str]:
    if facts.bound == LATENCY:
        return (
            LATENCY,
            f"there is little work, and it takes {100 / max(percent, 1e-3):.0f} times the least call",
        )
    reached = f"it reaches {percent:.0f} % of the {facts.bound} limit"
    if percent >= NEAR_PERCENT:
        return facts.bound, reached
    if facts.bound == MEMORY and facts.kernels > 1:
        what = "kernels" if facts.on_gpu else "operators of torch"
        return MEMORY, f"{reached}, and {facts.kernels} {what} pass their results through memory"
    if not facts.on_gpu and facts.main is not None and facts.main.loops and not facts.main.packed_loops:
        return COMPUTE, f"{reached}, and no inner loop is vectorised"
    return LATENCY, f"{reached}, which is no limit yet: it waits more than it works"


def _steps(regime: str, facts: Facts) -> Iterator[Step]:
    said = 0
    for rule in RULES:
        if rule.regimes and regime not in rule.regimes:
            continue
        reason = rule.reason(facts)
        if reason:
            yield Step(rule.code, rule.action, reason)
            said += 1
        if said == MOST_STEPS or (reason and rule.code in LAST_WORDS):
            return
    if not said and regime in OTHERWISE:
        yield OTHERWISE[regime]
