"""Bugs in the judge's course of action: verdicts from evidence, cases, seats, the desk, the race."""

from __future__ import annotations

from mutant import Mutant

DECIDE = "judge/decide.py"
RUN = "judge/run.py"
SEAT = "judge/seat.py"
DESK = "judge/desk.py"
CASES = "judge/cases.py"

DECIDED = "null/test_decide.py"
SEATED = "cpu/test_seat.py"
GATED = "cpu/test_gate.py"
FORM = f"{SEATED}::test_every_output_must_have_its_form"
JUDGED = "cpu/test_cases.py"
KEPT = "cpu/test_kept.py"
CHANGING = f"{JUDGED}::test_contents_weights_and_modes_change_between_calls"
FORGED_TREE = f"{SEATED}::test_a_forged_structure_is_rejected"

_DECIDE = (
    Mutant(
        "fatal-findings-ignored",
        DECIDE,
        "if any(finding.fatal for finding in evidence.findings):",
        "if all(finding.fatal for finding in evidence.findings) and not evidence.cases:",
        (f"{DECIDED}::test_fatal_findings_reject_what_is_right",),
    ),
    Mutant(
        "failure-scored-as-passed",
        DECIDE,
        "if evidence.failure is not None:",
        "if evidence.failure is not None and not evidence.cases:",
        (f"{DECIDED}::test_precedence_is_failure_wrong_rejected_passed",),
        "D18",
    ),
    Mutant(
        "wrong-only-if-every-case-is",
        DECIDE,
        'if any(case.outcome == "wrong" for case in evidence.cases):',
        'if all(case.outcome == "wrong" for case in evidence.cases):',
        (f"{DECIDED}::test_one_wrong_case_is_wrong_wherever_it_stands",),
        "D16",
    ),
    Mutant(
        "only-the-last-case-decides",
        DECIDE,
        'if any(case.outcome == "wrong" for case in evidence.cases):',
        'if evidence.cases and evidence.cases[-1].outcome == "wrong":',
        (f"{DECIDED}::test_one_wrong_case_is_wrong_wherever_it_stands",),
        "D16",
    ),
    Mutant(
        "refusals-counted-as-passes",
        DECIDE,
        'passed = [case for case in evidence.cases if case.outcome == "passed"]',
        'passed = [case for case in evidence.cases if case.outcome in ("passed", "refused")]',
        (DECIDED,),
        "D19",
    ),
    Mutant(
        "cases-not-run-counted-as-passes",
        DECIDE,
        '- {"passed", "refused"}',
        '- {"passed", "refused", "not_run", "crashed", "timed_out"}',
        (f"{DECIDED}::test_without_a_declared_case_passed_there_is_no_verdict",),
        "D19",
    ),
    Mutant(
        "derived-cases-are-enough",
        DECIDE,
        "not any(not case.derived for case in passed)",
        "not passed",
        (f"{DECIDED}::test_without_a_declared_case_passed_there_is_no_verdict",),
        "D19",
    ),
    Mutant(
        "best-case-is-the-margin",
        DECIDE,
        "margin = max(case.worst_ratio or 0.0 for case in passed)",
        "margin = min(case.worst_ratio or 0.0 for case in passed)",
        (f"{DECIDED}::test_passed_with_the_largest_ratio_of_the_passed_cases",),
    ),
)

_FORM = (
    Mutant(
        "output-count-check-removed",
        RUN,
        "    if len(facts) != len(wanted):\n"
        '        return f"{len(facts)} outputs where {len(wanted)} are specified"\n'
        "    for k, (fact, (shape, dtype)) in enumerate(zip(facts, wanted, strict=True)):\n",
        "    for k, (fact, (shape, dtype)) in enumerate(zip(facts, wanted, strict=False)):\n",
        (f"{SEATED}::test_there_must_be_as_many_outputs_as_specified",),
        "D9",
    ),
    Mutant(
        "shape-check-removed",
        RUN,
        "if (fact.shape, fact.dtype) != (shape, dtype):",
        "if fact.dtype != dtype:",
        (FORM,),
        "D9",
    ),
    Mutant(
        "dtype-check-removed",
        RUN,
        "if (fact.shape, fact.dtype) != (shape, dtype):",
        "if fact.shape != shape:",
        (FORM,),
        "D9",
    ),
    Mutant("plain-tensor-check-removed", RUN, "if not fact.plain:", "if not fact.type:", (FORM,), "B3"),
    Mutant(
        "lazy-view-check-removed",
        RUN,
        "if fact.lazy and not (calibration.lazy and calibration.lazy[k]):",
        "if fact.lazy and calibration.lazy and calibration.lazy[k]:",
        (FORM,),
        "D9",
    ),
    Mutant(
        "delivery-check-removed",
        RUN,
        'return "" if all(fact.delivered for fact in facts) else',
        'return "" if facts else',
        (FORM,),
        "A12",
    ),
    Mutant(
        "structure-check-removed",
        RUN,
        "if skeleton(tree) != calibration.structure:",
        "if not calibration.structure:",
        (f"{SEATED}::test_outputs_must_nest_as_specified",),
        "D9",
    ),
    Mutant(
        "tensors-in-any-order",
        RUN,
        "if tensor_order(tree) != list(range(tensor_count)):",
        "if len(tensor_order(tree)) > tensor_count:",
        (FORGED_TREE,),
        "A12",
    ),
    Mutant(
        "complaints-forgotten",
        RUN,
        "    if answer.complaint:\n        return Report(False,",
        "    if answer.complaint:\n        return Report(True,",
        (f"{SEATED}::test_an_answer_of_the_wrong_form_is_wrong_whatever_it_holds",),
        "D9",
    ),
    Mutant(
        "claims-beyond-the-mailbox-believed",
        DESK,
        "if end > taken.numel():",
        "if end < 0:",
        (f"{SEATED}::test_what_was_claimed_but_does_not_fit_is_rejected",),
        "A12",
    ),
)

_DESK = (
    Mutant(
        "input-modified-check-removed",
        DESK,
        "return self._fingerprinter.of(self._on_device(laid)) == self._fingerprint",
        "return laid.numel() >= 0",
        (f"{SEATED}::test_every_byte_laid_out_is_watched",),
        "E1",
    ),
    Mutant(
        "input-modified-not-a-finding",
        SEAT,
        "if not self._desk.inputs_untouched() and not run.calibration.writes_inputs:",
        "if not self._desk.inputs_untouched() and run.calibration.writes_inputs:",
        (f"{JUDGED}::test_one_element_written_into_an_input_is_noticed",),
        "E1",
    ),
    Mutant(
        "gaps-not-watched",
        DESK,
        "self._laid = slice(start, end)",
        "self._laid = slice(start, start + sum(t.numel() * t.element_size() for t in tensors))",
        (f"{SEATED}::test_every_byte_laid_out_is_watched",),
        "G10",
    ),
    Mutant(
        "gaps-without-noise",
        DESK,
        "arena.bytes[start:end].random_(0, 256)",
        "arena.bytes[start:end].zero_()",
        (f"{JUDGED}::test_gaps_between_elements_hold_noise_and_may_not_be_written",),
        "G3",
    ),
    Mutant(
        "inputs-never-move",
        DESK,
        "(1 + secrets.randbelow(slots)) if slots else 0",
        "1 if slots else 0",
        (f"{SEATED}::test_inputs_move_within_the_given_bytes_or_stay",),
        "C1",
    ),
    Mutant(
        "mailbox-not-cleared",
        DESK,
        "words.fill_(secrets.randbits(62))",
        "words.numel()",
        (f"{JUDGED}::test_an_answer_that_is_told_but_not_delivered_is_not_found_in_the_mailbox",),
        "D1",
    ),
    Mutant(
        "mailbox-cleared-with-zeros",
        DESK,
        "words.fill_(secrets.randbits(62))",
        "words.fill_(0)",
        (f"{JUDGED}::test_noise_in_the_mailbox_is_of_one_call_alone",),
        "D1",
    ),
    Mutant(
        "poison-constant",
        SEAT,
        '"pattern": secrets.randbits(32)',
        '"pattern": 0',
        (f"{JUDGED}::test_memory_is_poisoned_differently_for_every_call",),
        "G12",
    ),
    Mutant(
        "aliasing-check-removed",
        SEAT,
        "if fact.aliases and not run.lends_inputs:",
        "if fact.aliases and run.lends_inputs:",
        (f"{JUDGED}::test_memory_of_an_input_is_no_output",),
        "D3",
    ),
    Mutant(
        "judges-clock-from-the-child",
        SEAT,
        "Timed(sample.device_us, sample.host_us, sample.sm_mhz, wall_us, sample.launch_us)",
        "Timed(sample.device_us, sample.host_us, sample.sm_mhz, sample.host_us, sample.launch_us)",
        (f"{SEATED}::test_the_judge_times_the_whole_exchange_by_its_own_clock",),
        "A13",
    ),
    Mutant(
        "cover-without-a-limit",
        SEAT,
        "return int(min(max(COVER_FACTOR * self.usual_launch_us, LEAST_COVER_US), MOST_COVER_US))",
        "return int(max(COVER_FACTOR * self.usual_launch_us, LEAST_COVER_US))",
        (f"{SEATED}::test_a_candidate_cannot_ask_for_an_endless_cover",),
        "B13",
    ),
    Mutant(
        "inputs-there-before-the-gate-opens",
        DESK,
        "            view.zero_()\n",
        "            view.shape\n",
        (f"{GATED}::test_inputs_do_not_exist_while_calls_are_queued",),
        "B14",
    ),
    Mutant(
        "waiting-calls-are-timed",
        SEAT,
        "None if waited else passed_us)",
        "passed_us)",
        (f"{GATED}::test_whoever_waits_within_its_calls_answers_and_has_no_time",),
        "B13",
    ),
    Mutant(
        "judge-goes-on-beside-who-is-never-done",
        SEAT,
        "            self.child.kill()\n            gate.give_up()\n",
        "            gate.give_up()\n",
        (f"{GATED}::test_who_is_never_done_is_killed_before_the_judge_goes_on",),
        "A16",
    ),
    Mutant(
        "one-answer-read-for-the-whole-burst",
        SEAT,
        "taken.chunk(calls), strict=True)",
        "taken.chunk(calls)[:1] * calls, strict=True)",
        (f"{SEATED}::test_every_answer_of_a_burst_is_read_from_its_own_place",),
        "B7",
    ),
    Mutant(
        "weights-never-renewed",
        SEAT,
        '        if state == "by name":\n',
        '        if state == "by no name":\n',
        (CHANGING,),
        "B17",
    ),
)

_CASES = (
    Mutant(
        "only-the-last-call-checked",
        CASES,
        "            if not report.ok:\n                break\n",
        "",
        (f"{JUDGED}::test_one_wrong_output_of_one_call_is_wrong",),
        "D16",
    ),
    Mutant(
        "only-the-first-call-checked",
        CASES,
        "    last = reports[-1]\n",
        "    last = reports[0]\n",
        (f"{JUDGED}::test_one_wrong_output_of_one_call_is_wrong",),
        "E12",
    ),
    Mutant(
        "wrong-case-called-passed",
        CASES,
        'outcome = "wrong" if not last.ok else',
        'outcome = "passed" if not last.ok else',
        (f"{JUDGED}::test_one_wrong_output_of_one_call_is_wrong",),
        "D18",
    ),
    Mutant(
        "last-ratio-for-the-worst",
        CASES,
        "worst_ratio=max(r.worst_ratio for r in reports)",
        "worst_ratio=last.worst_ratio",
        (f"{JUDGED}::test_the_worst_of_all_calls_is_told",),
    ),
    Mutant(
        "input-seeds-fixed",
        CASES,
        "inputs = run.instance.make_inputs(secrets.randbits(62), self._device)\n        if room",
        "inputs = run.instance.make_inputs(62 + k, self._device)\n        if room",
        (f"{JUDGED}::test_no_two_runs_see_the_same_inputs",),
        "E16",
    ),
    Mutant(
        "one-input-for-all-calls",
        CASES,
        "inputs = run.instance.make_inputs(secrets.randbits(62), self._device)\n        if room",
        "inputs = run.first_inputs or run.instance.make_inputs(62, self._device)\n        if room",
        (CHANGING,),
        "C4",
    ),
    Mutant(
        "second-input-all-new",
        CASES,
        "changed or touched(run.first_inputs, inputs, secrets.randbits(62))",
        "changed or inputs",
        (f"{JUDGED}::test_the_second_input_is_almost_the_first_under_the_same_tensor",),
        "C5",
    ),
    Mutant(
        "later-inputs-in-the-same-place",
        CASES,
        "within_bytes=NEARBY_BYTES if k > 1 else 0",
        "within_bytes=0",
        (f"{JUDGED}::test_the_second_input_is_almost_the_first_under_the_same_tensor",),
        "C1",
    ),
    Mutant(
        "one-grad-mode",
        CASES,
        "grad = GRAD_MODES[k * len(GRAD_MODES) // calls]",
        "grad = GRAD_MODES[0]",
        (CHANGING,),
        "E11",
    ),
    Mutant(
        "late-write-check-removed",
        CASES,
        "if now != before.fingerprints:",
        "if len(now) != len(before.fingerprints):",
        (f"{JUDGED}::test_an_output_that_changes_later_is_noticed",),
        "D15",
    ),
    Mutant(
        "only-the-first-kept-output-read-again",
        CASES,
        "for index, before in enumerate(kept):",
        "for index, before in enumerate(kept[:1]):",
        (f"{JUDGED}::test_an_output_that_changes_later_is_noticed",),
        "D21",
    ),
    Mutant(
        "zeros-behind-inputs",
        DESK,
        "* ALIGNMENT_BYTES].random_(0, 256)",
        "* ALIGNMENT_BYTES].zero_()",
        (f"{JUDGED}::test_noise_lies_behind_an_input",),
        "G10",
    ),
    Mutant(
        "few-answers-kept-at-once",
        CASES,
        "for _ in range(KEPT_AT_ONCE)]",
        "for _ in range(3)]",
        (f"{KEPT}::test_buffers_in_turn_are_noticed",),
        "D21",
    ),
    Mutant(
        "kept-answers-not-read-again",
        CASES,
        "return burst.answers[0].findings[:1] + self._read_again(kept, spec.case.name, room)",
        "return burst.answers[0].findings[:1]",
        (f"{KEPT}::test_a_late_write_into_any_of_many_is_noticed",),
        "D21",
    ),
    Mutant(
        "buffers-not-compared",
        CASES,
        "return outputs if kept.ok else replace(",
        "return outputs if got else replace(",
        (f"{KEPT}::test_buffers_out_of_step_are_wrong_where_they_are_part_of_the_answer",),
        "G13",
    ),
    Mutant(
        "nothing-called-twice",
        CASES,
        "if report.ok and k == 0 and room <= REPEAT_BYTES:",
        "if report.ok and k < 0 and room <= REPEAT_BYTES:",
        (f"{JUDGED}::test_two_calls_on_one_input_must_agree_in_bits",),
        "D22",
    ),
    Mutant(
        "nondeterminism-never-fatal",
        CASES,
        "fatal = self._precision.deterministic",
        "fatal = False",
        (f"{JUDGED}::test_two_calls_on_one_input_must_agree_in_bits",),
        "D22",
    ),
)

MUTANTS = (*_DECIDE, *_FORM, *_DESK, *_CASES)
