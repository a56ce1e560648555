"""Bugs around the comparison: calibration, the coarse look, fingerprints, new contents and weights."""

from __future__ import annotations

from mutant import Mutant

CALIBRATE = "correctness/calibrate.py"
WRONG_ANSWERS = "correctness/mutants.py"
SCREEN = "correctness/screen.py"
FINGERPRINT = "correctness/fingerprint.py"

CALIBRATED = "cpu/test_calibrate.py"
JUDGED = "cpu/test_judge.py"
SCREENED = "cpu/test_screen.py"
PRINTS = "cpu/test_fingerprint.py"
WEIGHTS = "cpu/test_reference.py::test_perturbed_weights_are_ordinary_numbers"

_CALIBRATION = (
    Mutant(
        "surviving-mutants-ignored",
        CALIBRATE,
        "survivors.append(name)",
        "survivors.count(name)",
        (f"{CALIBRATED}::test_constant_output_is_recognised",),
        "D5",
    ),
    Mutant(
        "every-case-discriminates",
        CALIBRATE,
        "return not self.survivors and not self.random",
        "return True",
        (f"{CALIBRATED}::test_constant_output_is_recognised",),
        "D6",
    ),
    Mutant(
        "mutants-always-fail",
        CALIBRATE,
        "if wrong is not None and _same_form(wrong, right) and yardstick.check(wrong, levels=levels).ok:",
        "if wrong is not None and not _same_form(wrong, right):",
        (f"{CALIBRATED}::test_zeros_within_tolerance_are_recognised",),
        "D5",
    ),
    Mutant(
        "unseen-precision-not-told",
        CALIBRATE,
        "unseen.append(name)",
        "unseen.count(name)",
        (f"{CALIBRATED}::test_lower_precision_is_unseen_on_data_it_can_hold",),
        "F11",
    ),
    Mutant(
        "randomness-not-noticed",
        CALIBRATE,
        "random |= any(map(_disagree, yardstick.native, again))",
        "random |= False",
        (f"{CALIBRATED}::test_randomness_is_recognised",),
        "D7",
    ),
    Mutant(
        "dead-inputs-not-noticed",
        CALIBRATE,
        "if _same_form(moved, right) and yardstick.check(moved, levels=(1,)).ok:",
        "if not _same_form(moved, right):",
        (f"{CALIBRATED}::test_an_ignored_input_is_dead_and_a_used_one_is_not",),
        "D20",
    ),
    Mutant(
        "open-outputs-not-noticed",
        CALIBRATE,
        "            found.append(k)\n    return tuple(found)",
        "            found.count(k)\n    return tuple(found)",
        ("cpu/test_prepare.py::test_what_no_case_can_tell_is_a_flaw",),
        "D6",
    ),
    Mutant(
        "large-cases-never-random",
        CALIBRATE,
        "return _Trials(tuple(survivors), random=random)",
        "return _Trials(tuple(survivors))",
        (f"{CALIBRATED}::test_large_inputs_are_calibrated_in_the_short_way",),
    ),
    Mutant(
        "specification-that-writes-goes-unnoticed",
        CALIBRATE,
        "after = _fingerprints(fingerprinter, inputs)",
        "after = before",
        (f"{CALIBRATED}::test_in_place_modules_say_so_and_are_still_judged",),
        "D4",
    ),
    Mutant(
        "what-is-only-read-may-be-ignored",
        CALIBRATE,
        "if k in written or tensor.shape",
        "if True or tensor.shape",
        (f"{JUDGED}::test_what_a_task_only_reads_must_matter",),
    ),
    Mutant(
        "a-place-for-the-answer-is-a-flaw",
        CALIBRATE,
        "if k in written or tensor.shape",
        "if tensor.shape",
        (f"{JUDGED}::test_where_a_task_writes_its_answer_nothing_need_be_read",),
    ),
    Mutant(
        "zeros-mutant-is-right",
        WRONG_ANSWERS,
        "return [torch.zeros_like(t) for t in right]",
        "return right",
        (f"{CALIBRATED}::test_mutants_differ_from_the_right_answer_or_are_none",),
        "D5",
    ),
    Mutant(
        "dropped-tail-mutant-is-right",
        WRONG_ANSWERS,
        "            flat[-count:] = tail\n",
        "",
        (f"{CALIBRATED}::test_mutants_differ_from_the_right_answer_or_are_none",),
        "D10",
    ),
    Mutant(
        "scaled-mutant-is-right",
        WRONG_ANSWERS,
        "return 1.0 + max(0.01, 8 * torch.finfo(dtype).eps)",
        "return 1.0",
        (f"{CALIBRATED}::test_mutants_differ_from_the_right_answer_or_are_none",),
        "F4",
    ),
    Mutant(
        "lower-precision-mutant-is-right",
        WRONG_ANSWERS,
        "    return tensor.to(lower).to(tensor.dtype)\n",
        "    return tensor.clone()\n",
        (f"{CALIBRATED}::test_lower_dtype_rounds_to_the_next_lower_precision",),
        "F1",
    ),
    Mutant(
        "linearised-mutant-is-right",
        WRONG_ANSWERS,
        "return line(args[0])",
        "return func(*args, **(kwargs or {}))",
        ("cpu/test_reference.py::test_linearised_hits_every_smooth_activation",),
        "F3",
    ),
    Mutant(
        "stale-answers-not-required-to-fail",
        WRONG_ANSWERS,
        '"scaled", "other_input", "dropped_tail")',
        '"scaled", "dropped_tail")',
        (f"{CALIBRATED}::test_constant_output_is_recognised",),
        "D6",
    ),
)

_CONTENTS = (
    Mutant(
        "screen-looks-at-one-output",
        SCREEN,
        "for a, b in zip(got, other, strict=True)), default=0.0)",
        "for a, b in list(zip(got, other, strict=True))[:1]), default=0.0)",
        (SCREENED,),
        "D9",
    ),
    Mutant(
        "screen-blind-to-nan",
        SCREEN,
        "    if not math.isfinite(far):\n        return math.inf\n",
        "    if not math.isfinite(far):\n        return 0.0\n",
        (SCREENED,),
        "D12",
    ),
    Mutant(
        "screen-looks-at-one-chunk",
        SCREEN,
        "return float(torch.stack(apart).norm())",
        "return float(apart[0])",
        (SCREENED,),
        "D10",
    ),
    Mutant("nothing-is-suspicious", SCREEN, "FACTOR = 16.0", "FACTOR = 1e9", (SCREENED,)),
    Mutant(
        "nearest-known-answer-ignored",
        SCREEN,
        "apart > FACTOR * max(known, default=0.0) + floor",
        "apart > FACTOR * sum(known) + 0.1",
        (SCREENED,),
    ),
    Mutant(
        "fingerprint-blind-to-the-last-bytes",
        FINGERPRINT,
        "if tail := flat_bytes.numel() - words.numel() * 8:",
        "if (tail := flat_bytes.numel() - words.numel() * 8) > 8:",
        (f"{PRINTS}::test_every_single_bit_counts_in_small_memory",),
    ),
    Mutant(
        "fingerprint-blind-after-whole-rows",
        FINGERPRINT,
        "sums.append((words[whole:] * self._keys[:rest]).sum() * self._tail_key)",
        "sums.append(words[whole : whole + 1].sum() * self._tail_key)",
        (f"{PRINTS}::test_every_single_bit_counts_in_small_memory",),
    ),
    Mutant(
        "fingerprint-blind-to-half-of-the-rows",
        FINGERPRINT,
        "for start in range(0, rows.shape[0], _ROWS):",
        "for start in range(0, rows.shape[0], 2 * _ROWS):",
        (f"{PRINTS}::test_every_part_of_large_memory_counts",),
    ),
    Mutant(
        "fingerprint-without-places",
        FINGERPRINT,
        "(words[whole:] * self._keys[:rest]).sum()",
        "(words[whole:] * self._keys[0]).sum()",
        (f"{PRINTS}::test_moved_and_swapped_contents_show",),
    ),
    Mutant(
        "fingerprint-rows-interchangeable",
        FINGERPRINT,
        "(each * self._row_keys[start : start + each.numel()]).sum()",
        "each.sum()",
        (f"{PRINTS}::test_exchanged_rows_show",),
    ),
    Mutant(
        "fingerprint-keys-known",
        FINGERPRINT,
        "manual_seed(secrets.randbits(62))",
        "manual_seed(62)",
        (f"{PRINTS}::test_a_change_that_keeps_one_fingerprint_does_not_keep_another",),
    ),
    Mutant(
        "touched-input-is-the-old-one",
        "correctness/touching.py",
        "mixed[index] = other[index]",
        "mixed[index] = tensor[index]",
        (f"{SCREENED}::test_a_touched_input_differs_in_a_few_elements",),
        "C5",
    ),
    Mutant(
        "touched-input-is-all-new",
        "correctness/touching.py",
        "mixed = tensor.clone()",
        "mixed = other.clone()",
        (f"{SCREENED}::test_a_touched_input_differs_in_a_few_elements",),
        "C5",
    ),
    Mutant(
        "touched-elements-in-the-first-row",
        "correctness/touching.py",
        "rng.randrange(n) for n in tensor.shape)",
        "rng.randrange(n) * (k > 0) for k, n in enumerate(tensor.shape))",
        (f"{SCREENED}::test_touched_elements_lie_anywhere",),
        "F7",
    ),
    Mutant(
        "zero-weights-stay-zero",
        "correctness/weights.py",
        "moved = moved + scale * torch.randn(",
        "moved = moved + 0.0 * scale * torch.randn(",
        (WEIGHTS,),
        "G6",
    ),
    Mutant(
        "variances-become-negative",
        "correctness/weights.py",
        "if name in parameter_names:",
        "if tensor.is_floating_point():",
        (WEIGHTS,),
    ),
    Mutant(
        "weights-from-a-fixed-seed",
        "correctness/weights.py",
        "manual_seed(seed))",
        "manual_seed(0))",
        ("cpu/test_reference.py::test_perturbed_keeps_scale_shape_and_dtype_and_follows_the_seed",),
        "B17",
    ),
)

MUTANTS = (*_CALIBRATION, *_CONTENTS)
