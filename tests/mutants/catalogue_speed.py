"""Bugs in the speed verdict: ratios, intervals, the second clock, disturbances, the physical limit."""

from __future__ import annotations

from mutant import Mutant

COMPARE = "speed/compare.py"
CLOCKS = "speed/clocks.py"
DISTURBANCE = "speed/disturbance.py"
SCORE = "speed/score.py"
ROOFLINE = "speed/roofline.py"
CALIBRATION = "judge/calibration.py"

RATIOS = "null/test_compare.py"
TWO_CLOCKS = "null/test_clocks.py"
QUIET = "null/test_disturbance.py"
SCORED = "null/test_score.py"
MARGINS = f"{RATIOS}::test_the_whole_interval_must_clear_the_margin"
FORGED_CLOCK = f"{TWO_CLOCKS}::test_a_shortened_clock_is_caught"
DAWDLING = f"{TWO_CLOCKS}::test_a_candidate_cannot_make_the_error_larger_itself"
LATENCY = f"{TWO_CLOCKS}::test_launching_explains_only_so_much"
IMPOSSIBLE = f"{SCORED}::test_an_impossible_time_is_a_reason"
LINE = "cpu/test_roofline.py::test_the_line_rests_on_what_is_certain"

_RATIOS = (
    Mutant(
        "arms-swapped-in-the-ratio",
        COMPARE,
        "return math.log(max(other, LEAST_US) / max(own, LEAST_US))",
        "return math.log(max(own, LEAST_US) / max(other, LEAST_US))",
        (f"{RATIOS}::test_each_contestant_counts_by_the_slower_of_its_two_calls",),
    ),
    Mutant(
        "faster-of-two-calls",
        COMPARE,
        "own, other = (max(s.device_us for s in samples)",
        "own, other = (min(s.device_us for s in samples)",
        (f"{RATIOS}::test_each_contestant_counts_by_the_slower_of_its_two_calls",),
        "A13",
    ),
    Mutant(
        "mean-for-median",
        COMPARE,
        "centres = [statistics.median(group) for group in groups]",
        "centres = [statistics.fmean(group) for group in groups]",
        (f"{RATIOS}::test_single_disturbances_do_not_move_the_middle",),
        "A4",
    ),
    Mutant(
        "margin-ignored-for-faster", COMPARE, "if ratio.low > 1 + margin:", "if ratio.low > 1:", (MARGINS,)
    ),
    Mutant(
        "margin-ignored-for-slower",
        COMPARE,
        "if ratio.high < 1 / (1 + margin):",
        "if ratio.high < 1:",
        (MARGINS,),
    ),
    Mutant(
        "interval-ends-swapped",
        COMPARE,
        "if ratio.low > 1 + margin:",
        "if ratio.high > 1 + margin:",
        (MARGINS,),
    ),
    Mutant(
        "interval-without-width",
        COMPARE,
        "return Interval(math.exp(middle), math.exp(low), math.exp(high))",
        "return Interval(math.exp(middle), math.exp(middle), math.exp(middle))",
        (f"{RATIOS}::test_one_process_gets_an_interval_from_its_blocks",),
    ),
    Mutant(
        "one-process-instead-of-all",
        COMPARE,
        "groups = [list(group) for group in processes if group]",
        "groups = [list(group) for group in processes if group][:1]",
        (f"{RATIOS}::test_two_processes_that_disagree_settle_nothing",),
    ),
    Mutant(
        "three-processes-taken-for-many",
        COMPARE,
        "spread = _student(len(centres) - 1) * statistics.stdev(centres)",
        "spread = 0.0 * statistics.stdev(centres)",
        (f"{RATIOS}::test_the_interval_holds_the_truth_where_processes_differ",),
    ),
    Mutant(
        "one-block-settles-it",
        COMPARE,
        "if sum(len(group) for group in groups) < 2:",
        "if not groups:",
        (f"{SCORED}::test_one_block_settles_nothing",),
    ),
    Mutant(
        "never-more-samples",
        COMPARE,
        "return outcome(ratio, margin) != NO_DIFFERENCE or ratio.high / ratio.low < 1 + margin",
        "return True",
        (f"{RATIOS}::test_more_samples_are_taken_until_they_change_nothing",),
    ),
)

_CLOCKS = (
    Mutant(
        "clocks-never-disagree",
        "records/speed.py",
        "return self.device_us >= self.judge_us - self.error_us",
        "return self.error_us >= 0",
        (FORGED_CLOCK,),
        "A1",
    ),
    Mutant(
        "clocks-disagree-the-wrong-way",
        "records/speed.py",
        "return self.device_us >= self.judge_us - self.error_us",
        "return self.device_us <= self.judge_us + self.error_us",
        (FORGED_CLOCK,),
        "A1",
    ),
    Mutant(
        "error-from-the-candidates-own-samples",
        CLOCKS,
        "quartile) for values in theirs)\n        for _ in range(RESAMPLES)",
        "quartile) for values in mine)\n        for _ in range(RESAMPLES)",
        (f"{TWO_CLOCKS}::test_few_shaky_samples_of_its_own_excuse_nobody",),
        "A6",
    ),
    Mutant(
        "scatter-from-the-candidates-own-samples",
        CLOCKS,
        "spread = statistics.fmean(_at(values, 0.75) - _at(values, 0.25) for values in theirs)",
        "spread = statistics.fmean(_at(values, 0.75) - _at(values, 0.25) for values in mine)",
        (DAWDLING,),
        "A6",
    ),
    Mutant(
        "only-the-median-compared",
        CLOCKS,
        "QUARTILES, HOST_QUARTILES = (0.25, 0.5, 0.75), (0.25,)",
        "QUARTILES, HOST_QUARTILES = (0.5,), (0.5,)",
        (f"{TWO_CLOCKS}::test_a_share_of_forged_samples_is_found", DAWDLING),
        "A4",
    ),
    Mutant(
        "kindest-quartile-taken",
        CLOCKS,
        "return max(checks, key=lambda check: check.judge_us - check.error_us)",
        "return min(checks, key=lambda check: check.judge_us - check.error_us)",
        (f"{TWO_CLOCKS}::test_a_share_of_forged_samples_is_found", DAWDLING),
        "A4",
    ),
    Mutant(
        "error-a-share-of-everything",
        CLOCKS,
        "SHARE, HOST_SHARE = 0.03, 0.25",
        "SHARE, HOST_SHARE = 0.9, 0.9",
        (FORGED_CLOCK,),
        "A13",
    ),
    Mutant(
        "exchange-compared-with-itself",
        CLOCKS,
        "return sample.wall_us - sample.device_us",
        "return sample.device_us - sample.device_us",
        (FORGED_CLOCK,),
        "A13",
    ),
    Mutant(
        "launching-explains-everything",
        CLOCKS,
        "launch = min(_usual(own, _launch), allowed_launch_us(_usual(other, _launch)))",
        "launch = _usual(own, _launch)",
        (LATENCY,),
        "B14",
    ),
    Mutant(
        "latency-by-the-candidates-clock-alone",
        CLOCKS,
        "judge_us=latency + max(excess, 0.0) - launch",
        "judge_us=latency - launch",
        (f"{TWO_CLOCKS}::test_a_latency_that_is_told_too_short_shows_in_the_exchange",),
        "A2",
    ),
    Mutant(
        "latency-with-the-first-call",
        CLOCKS,
        "own = [[pair[0] for pair in run.idle[1:]]",
        "own = [[pair[0] for pair in run.idle[:1]]",
        (f"{TWO_CLOCKS}::test_the_first_idle_call_of_a_process_is_left_out",),
        "B18",
    ),
    Mutant(
        "burst-error-from-the-candidate",
        CLOCKS,
        "return excess, statistics.fmean(max(walls) - min(walls) for walls in theirs)",
        "return excess, max(pair.candidate_us for run in raced for pair in run.bursts) - min(mine)",
        (f"{TWO_CLOCKS}::test_the_opponents_bursts_alone_make_the_error",),
        "A6",
    ),
    Mutant(
        "burst-of-the-opponent-alone",
        CLOCKS,
        "judge_us = _opponent_us(runs, calls, opponent_warm_us) + excess",
        "judge_us = excess",
        (f"{TWO_CLOCKS}::test_many_calls_in_one_exchange_contradict_a_forged_time",),
        "A13",
    ),
    Mutant(
        "blocking-calls-need-no-proof",
        CLOCKS,
        "    if on_host or not limits:\n",
        "    if on_host:\n",
        (f"{TWO_CLOCKS}::test_who_has_no_bursts_has_to_be_faster_in_idle_calls",),
        "B13",
    ),
    Mutant(
        "idle-noise-proves-a-gain",
        CLOCKS,
        "return _times_faster(theirs, excess + error)",
        "return _times_faster(theirs, excess - error)",
        (f"{TWO_CLOCKS}::test_who_has_no_bursts_has_to_be_faster_in_idle_calls",),
        "B13",
    ),
    Mutant(
        "short-bursts-among-long-ones",
        CLOCKS,
        ".append([pair for pair in run.bursts if pair.calls == calls])",
        ".append(run.bursts)",
        (f"{TWO_CLOCKS}::test_single_calls_and_many_are_kept_apart",),
        "B13",
    ),
    Mutant(
        "every-call-pays-for-the-turn",
        CLOCKS,
        "error += LEAST_GATED_US + (GATE_US + spread_us) / calls +",
        "error += LEAST_GATED_US + (GATE_US + spread_us) +",
        (f"{TWO_CLOCKS}::test_many_calls_share_what_their_turn_costs",),
        "A13",
    ),
    Mutant(
        "opponents-never-scatter",
        CLOCKS,
        "error += LEAST_GATED_US + (GATE_US + spread_us) / calls +",
        "error += LEAST_GATED_US + GATE_US / calls +",
        (f"{TWO_CLOCKS}::test_a_single_call_of_a_long_opponent_scatters_as_its_timed_ones_do",),
        "A13",
    ),
)

_DISTURBANCE = (
    Mutant(
        "blocks-dropped-by-the-candidates-clock",
        DISTURBANCE,
        "for sample in block.opponent)",
        "for sample in block.candidate)",
        (QUIET,),
        "A20",
    ),
    Mutant(
        "throttled-blocks-kept",
        DISTURBANCE,
        "if not throttled(block, middle)]",
        "if middle > 0]",
        (QUIET,),
        "A20",
    ),
    Mutant(
        "opponent-disturbed-check-removed",
        DISTURBANCE,
        "return (quiet, loud) if lifted and loud > SLOWED * quiet + LEAST_US else None",
        "return (quiet, loud) if lifted and loud < 0 else None",
        (QUIET,),
        "A19",
    ),
    Mutant(
        "opponent-disturbed-reversed",
        DISTURBANCE,
        "return (quiet, loud) if lifted and loud > SLOWED * quiet + LEAST_US else None",
        "return (quiet, loud) if quiet > SLOWED * loud + LEAST_US else None",
        (QUIET,),
        "A19",
    ),
    Mutant("noise-called-disturbance", DISTURBANCE, "if lifted and loud >", "if loud >", (QUIET,), "A19"),
    Mutant(
        "faster-on-a-cpu-by-its-own-word",
        SCORE,
        "if _is_host(speed) and clocks.judge_us > clocks.device_us:",
        "if not _is_host(speed) and clocks.judge_us > clocks.device_us:",
        (f"{SCORED}::test_on_a_cpu_faster_has_to_be_so_by_the_judges_clock_too",),
        "A2",
    ),
    Mutant(
        "flush-left-out-unseen",
        SCORE,
        "or (_is_host(speed) and k == 0 and check.hurried):",
        "or (not _is_host(speed) and k == 0 and check.hurried):",
        (f"{SCORED}::test_on_a_cpu_an_exchange_may_not_be_too_short_either",),
        "A2",
    ),
    Mutant(
        "noise-held-against-the-slow",
        SCORE,
        "    return not _is_host(speed) or outcome(speed.ratio, heat.margin) == FASTER\n",
        "    return bool(speed and heat)\n",
        (f"{SCORED}::test_on_a_cpu_clocks_that_disagree_for_nothing_are_a_note_unless_worlds_apart",),
        "A2",
    ),
    Mutant(
        "worlds-apart-is-a-note",
        SCORE,
        "text, gains or apart)",
        "text, gains)",
        (f"{SCORED}::test_on_a_cpu_clocks_that_disagree_for_nothing_are_a_note_unless_worlds_apart",),
        "A6",
    ),
    Mutant(
        "warm-caches-believed-cold",
        SCORE,
        "limits = gain_limits(heat.runs, _warm_us(heat))",
        "limits: dict[str, float] = {}",
        (
            f"{SCORED}::test_who_is_faster_is_so_many_calls_at_once_too",
            f"{SCORED}::test_who_is_faster_on_a_cpu_is_so_when_idle_too",
        ),
        "A2",
    ),
    Mutant(
        "warm-calls-tell-nothing-of-gain",
        CLOCKS,
        "    if warm and not on_host:\n",
        "    if warm and on_host:\n",
        (
            f"{SCORED}::test_who_is_faster_on_a_device_is_so_with_warm_caches_too",
            f"{SCORED}::test_warm_caches_tell_nothing_of_gain_on_a_cpu",
        ),
        "A2",
    ),
    Mutant(
        "scattered-bursts-refute-a-gain",
        CLOCKS,
        "excess -= 0.0 if on_host else scatter",
        "excess -= 0.0",
        (f"{SCORED}::test_many_calls_at_once_refute_no_more_than_they_can_tell_on_a_device",),
        "A2",
    ),
    Mutant(
        "idle-calls-tell-nothing-of-gain",
        CLOCKS,
        "    if on_host or not limits:\n",
        "    if not limits:\n",
        (f"{SCORED}::test_who_is_faster_on_a_cpu_is_so_when_idle_too",),
        "A2",
    ),
    Mutant(
        "opponent-alone-not-asked",
        SCORE,
        "if alone is not None:",
        "if alone is None:",
        (f"{SCORED}::test_the_opponent_alone_decides_who_is_faster",),
        "A19",
    ),
    Mutant(
        "opponent-alone-the-wrong-way-round",
        DISTURBANCE,
        "return statistics.median(alone) / candidate_us if",
        "return candidate_us / statistics.median(alone) if",
        (f"{SCORED}::test_an_honest_race_is_believed",),
        "A19",
    ),
)

_SCORE = (
    Mutant(
        "faster-than-physics-removed",
        SCORE,
        "clocks.device_us < roofline.invalid_below_us:",
        "clocks.device_us < 0:",
        (IMPOSSIBLE,),
        "A16",
    ),
    Mutant(
        "faster-than-physics-reversed",
        SCORE,
        "clocks.device_us < roofline.invalid_below_us:",
        "clocks.device_us > roofline.invalid_below_us:",
        (IMPOSSIBLE,),
        "A16",
    ),
    Mutant(
        "impossible-time-is-a-note",
        SCORE,
        'Finding("faster_than_physics", text, True)',
        'Finding("faster_than_physics", text, False)',
        (IMPOSSIBLE,),
        "A16",
    ),
    Mutant(
        "forged-clock-is-a-note",
        SCORE,
        "        if not check.agrees:\n",
        "        if not check.agrees and what != 'calls behind a gate take':\n",
        (f"{SCORED}::test_a_forged_clock_is_a_reason",),
        "A1",
    ),
    Mutant(
        "forged-clock-is-a-note-on-a-cpu",
        SCORE,
        "        if not check.agrees:\n",
        "        if not check.agrees and what != 'timed calls take':\n",
        (f"{SCORED}::test_on_a_cpu_clocks_that_disagree_for_nothing_are_a_note_unless_worlds_apart",),
        "A1",
    ),
    Mutant(
        "disturbed-opponent-is-a-note",
        SCORE,
        'Finding("opponent_disturbed", text, _gains(speed, heat))',
        'Finding("opponent_disturbed", text, False)',
        (f"{SCORED}::test_a_disturbed_opponent_is_a_reason",),
        "A19",
    ),
    Mutant(
        "idle-calls-not-looked-at",
        SCORE,
        "    idle = check_latency(heat.runs, reported_us)\n",
        "    idle = None\n",
        (f"{SCORED}::test_an_idle_call_that_takes_longer_is_a_reason",),
        "A2",
    ),
    Mutant(
        "less-than-nothing-believed",
        SCORE,
        "if check.judge_us + check.error_us < 0 or (",
        "if check.judge_us + check.error_us < -1e9 or (",
        (f"{SCORED}::test_calls_that_take_less_than_nothing_are_held_against_who_gains",),
        "A2",
    ),
    Mutant(
        "bursts-not-looked-at",
        SCORE,
        "    bursts = check_bursts(heat.runs, reported_us, _warm_us(heat))\n",
        "    bursts = None\n",
        (f"{SCORED}::test_many_calls_at_once_that_take_longer_are_a_reason",),
        "A13",
    ),
    Mutant(
        "throttled-blocks-scored",
        SCORE,
        "kept = [blocks for blocks in steady_blocks(heat.runs) if blocks]",
        "kept = [list(run.blocks) for run in heat.runs]",
        (f"{SCORED}::test_a_clock_that_fell_is_a_note",),
        "A20",
    ),
    Mutant(
        "best-sample-scored",
        SCORE,
        "return statistics.median(s.device_us for run in runs",
        "return min(s.device_us for run in runs",
        (f"{SCORED}::test_the_scored_time_is_what_the_roof_is_asked_about",),
        "A4",
    ),
    Mutant(
        "line-from-measured-ceilings",
        ROOFLINE,
        "certain_bytes / ceilings.peak_bytes_per_s)",
        "certain_bytes / ceilings.write_bytes_per_s)",
        (LINE,),
    ),
    Mutant(
        "line-counts-what-is-not-certain", ROOFLINE, "if work.source == DECLARED:", "if work.source:", (LINE,)
    ),
    Mutant(
        "line-a-thousand-times-too-low",
        ROOFLINE,
        "_MICROSECONDS = 1e6",
        "_MICROSECONDS = 1e3",
        (LINE,),
        "A16",
    ),
    Mutant(
        "line-without-arithmetic",
        ROOFLINE,
        "certain_s = _least_compute_s(work, ceilings)",
        "certain_s = 0.0",
        (LINE,),
        "A16",
    ),
    Mutant(
        "line-denies-the-cache",
        ROOFLINE,
        "certain_bytes = max(0, work.bytes_written - ceilings.l2_bytes)",
        "certain_bytes = work.bytes_written",
        (LINE,),
    ),
)

_SELF_TEST = (
    Mutant(
        "rejected-comparisons-forgotten",
        CALIBRATION,
        "                rejections.append(failure.message)\n",
        "                del failure\n",
        ("cpu/test_self_test.py::test_a_rejected_comparison_is_told_and_ends_nothing",),
    ),
    Mutant(
        "false-calls-are-right-ones",
        CALIBRATION,
        "outcome(interval, margin) != NO_DIFFERENCE",
        "outcome(interval, margin) == NO_DIFFERENCE",
        ("cpu/test_self_test.py::test_false_calls_and_twins_are_counted",),
    ),
)

MUTANTS = (*_RATIOS, *_CLOCKS, *_DISTURBANCE, *_SCORE, *_SELF_TEST)
