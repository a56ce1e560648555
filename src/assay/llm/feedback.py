"""What the judge found, in words for whoever writes the next attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from assay.records import BuildFailed, Crashed, Passed, Speed, TimedOut, Verdict

MOST_CHARACTERS = 4000
_MISMATCHES = 4
_KERNELS = 4
_TROUBLED = ("wrong", "rejected", "crashed", "timed_out", "refused")


def feedback(
    status: str, verdict: Verdict | None, record: Mapping[str, object], advice: Sequence[str] = ()
) -> str:
    """Never empty: the status at least, then findings, the diagnosis, cases with mismatches, times, and of
    what is right the resources of its kernels.

    Args:
        advice: lines about a right candidate that the verdict alone does not hold: `profile.advice_lines`.
    """
    lines = [f"Verdict: {status}."]
    if verdict is None:
        lines.append(str(record.get("message", "")))
    else:
        lines += [*_findings(verdict), *_end(verdict), *_cases(verdict), *_speed(verdict)]
        lines += [*_resources(verdict), *advice] if isinstance(verdict, Passed) else []
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n(cut)"


def _findings(verdict: Verdict) -> Iterator[str]:
    for finding in sorted(verdict.findings, key=lambda f: not f.fatal):
        where = f" (case {finding.case})" if finding.case else ""
        hint = f" Hint: {finding.hint}" if finding.hint else ""
        yield f"- {'' if finding.fatal else 'note: '}{finding.message}{where}{hint}"


def _end(verdict: Verdict) -> Iterator[str]:
    if isinstance(verdict, BuildFailed):
        yield verdict.diagnosis
    elif isinstance(verdict, Crashed):
        yield verdict.death
    elif isinstance(verdict, TimedOut):
        yield f"No answer within {verdict.limit_s:g} s while {verdict.phase}."


def _cases(verdict: Verdict) -> Iterator[str]:
    for case in verdict.cases:
        if case.outcome not in _TROUBLED:
            continue
        shape = ", ".join(f"{name}={value}" for name, value in case.sizes.items())
        about = ", ".join(part for part in (shape, case.dtype, case.layout, case.distribution) if part)
        counted = f"{case.wrong_elements} of {case.elements} elements" if case.wrong_elements else ""
        yield f"Case {case.name} ({about}): {case.outcome}. {case.message or counted}".rstrip()
        for miss in case.mismatches[:_MISMATCHES]:
            yield (
                f"  output {miss.output} at {list(miss.index)}: expected {miss.expected:.6g}, "
                f"got {miss.got:.6g}, tolerance {miss.tolerance:.2g}"
            )


def _speed(verdict: Verdict) -> Iterator[str]:
    if not isinstance(verdict, Passed):
        return
    if verdict.speed is None:
        yield f"Right on every case. Not timed: {verdict.speed_absent}" if verdict.speed_absent else ""
        return
    yield from _times(verdict.speed)


def _resources(verdict: Verdict) -> Iterator[str]:
    for kernel in verdict.resources[:_KERNELS]:
        yield f"Kernel {kernel.name}: {kernel.in_words()}."


def _times(speed: Speed) -> Iterator[str]:
    ratio, times = speed.ratio, speed.times
    yield (
        f"Right on every case. {times.device_us:.2f} us a call, called {speed.outcome}: "
        f"{ratio.middle:.3f} times the speed of the best baseline, {speed.opponent} "
        f"({ratio.low:.3f} to {ratio.high:.3f})."
    )
    for rung in speed.rungs:
        if rung.times is not None:
            yield f"- {rung.name}: {rung.times.device_us:.2f} us"
    if speed.roofline is not None:
        limit = speed.roofline
        yield (
            f"The {limit.bound} limit of this device is {limit.floor_us:.2f} us for {limit.bytes_read} bytes "
            f"read, {limit.bytes_written} written and {limit.flops} flops: {limit.percent:.0f} % is reached."
        )
