"""Bugs in the comparison: tolerances, the yardstick, large cases in parts."""

from __future__ import annotations

from mutant import Mutant

TOLERANCE = "correctness/tolerance.py"
YARDSTICK = "correctness/yardstick.py"
PARTS = "correctness/parts.py"
HONEST_RUNS = "correctness/honest.py"
TIES = "correctness/ties.py"

EDGES = "cpu/test_tolerance_edges.py"
ELEMENT = f"{EDGES}::test_one_element_is_held_alone_where_its_tile_would_hide_it"
SELDOM = f"{EDGES}::test_a_tile_in_ten_thousand_may_be_slightly_less_precise"
CLUSTER = f"{EDGES}::test_a_cluster_of_small_errors_fails_where_each_alone_would_pass"
NOT_FINITE = f"{EDGES}::test_a_number_may_not_become_nan_or_infinite"
SPECIAL = f"{EDGES}::test_nan_and_infinity_must_stand_where_the_specification_has_them"
BRINK = f"{EDGES}::test_on_the_brink_of_overflow_both_sides_are_right"
BLOCKS = f"{EDGES}::test_blocks_cover_the_whole_output"
OUTPUTS = f"{EDGES}::test_every_output_is_checked"
SLACK = f"{EDGES}::test_slack_widens_in_proportion"
LARGE_AND_SMALL = f"{EDGES}::test_large_elements_lend_no_tolerance_to_small_ones"
INTEGERS = f"{EDGES}::test_booleans_and_integers_are_exact"
HONEST = "cpu/test_tolerance.py::test_honest_variants_pass"
WRONG = "cpu/test_tolerance.py::test_wrong_variants_fail_on_every_seed"
SPLIT = "cpu/test_parts.py"
ORDERS = "cpu/test_worst_orders.py"
CALIBRATED = "cpu/test_calibrate.py"
RECIPES = "correctness/recipes.py"
GRADIENTS = "cpu/test_attention_gradients.py"

_TOLERANCE = (
    Mutant(
        "element-test-removed",
        TOLERANCE,
        "(error <= limit) | overflowed",
        "torch.ones_like(special)",
        (ELEMENT,),
        "D10",
    ),
    Mutant(
        "worst-tile-test-removed",
        TOLERANCE,
        "coarse += int((tile_ratio > 1).sum())",
        "coarse += 0",
        (CLUSTER,),
        "D10",
    ),
    Mutant(
        "nan-passes-the-element-test",
        TOLERANCE,
        "(error <= limit) |",
        "~(error > limit) |",
        (NOT_FINITE,),
        "D12",
    ),
    Mutant(
        "nan-dropped-by-the-quick-look",
        TOLERANCE,
        "        if not torch.isfinite(tile_ratio).all():\n            return math.inf, tile_ratio\n",
        "        tile_ratio = tile_ratio.nan_to_num(0.0, 0.0)\n",
        (NOT_FINITE,),
        "D12",
    ),
    Mutant(
        "nan-wildcard-for-any-special-value",
        TOLERANCE,
        "same = torch.where(torch.isnan(rounded), torch.isnan(g), g == rounded)",
        "same = ~torch.isfinite(g)",
        (SPECIAL,),
        "D11",
    ),
    Mutant(
        "overflow-anywhere-excused",
        TOLERANCE,
        "overflowed = brink & torch.isinf(g)",
        "overflowed = torch.isinf(g)",
        (BRINK,),
        "D12",
    ),
    Mutant(
        "one-unit-for-all-operators",
        "correctness/yardstick.py",
        "amplitude_of=amplitude if finer else None",
        "amplitude_of=None",
        (f"{EDGES}::test_a_low_input_lends_no_tolerance_to_a_float32_answer",),
        "F1",
    ),
    Mutant(
        "any-rank-excused",
        TIES,
        "            excused |= _same_elements(scores, dim, got, native)",
        "            excused |= True",
        (f"{EDGES}::test_places_of_computed_scores_that_tie_in_the_specifications_precision",),
        "F18",
    ),
    Mutant(
        "special-values-not-compared",
        TOLERANCE,
        "same | (apart <= limit)",
        "special",
        (SPECIAL,),
        "D11",
    ),
    Mutant(
        "honest-infinity-rejected",
        TOLERANCE,
        "same | (apart <= limit)",
        "apart <= limit",
        (SPECIAL,),
        "F17",
    ),
    Mutant(
        "overflow-excused-everywhere",
        TOLERANCE,
        "excused = self._loose[span.elements] & ~torch.isfinite(g)",
        "excused = ~torch.isfinite(g)",
        (f"{EDGES}::test_overflow_of_the_native_run_excuses_overflow_only_there",),
        "F17",
    ),
    Mutant(
        "nan-excused-for-any-infinity",
        TOLERANCE,
        "strange = ~torch.isfinite(v) & (v != o) & ~(",
        "strange = ~torch.isfinite(v) & ~(",
        (f"{EDGES}::test_nan_of_the_native_run_excuses_nan_where_the_exact_answer_is_infinite",),
        "F17",
    ),
    Mutant(
        "fixed-atol",
        TOLERANCE,
        "limit = ULP_FACTOR * self._info.eps * self._finite(o).abs_()",
        "limit = torch.full_like(o, 1e-2)",
        (ELEMENT,),
        "F13",
    ),
    Mutant(
        "tolerance-of-the-wrong-sign",
        TOLERANCE,
        "limit = ULP_FACTOR * self._info.eps * self._finite(o).abs_()",
        "limit = ULP_FACTOR * self._info.eps * self._finite(o)",
        (ELEMENT,),
    ),
    Mutant(
        "tolerance-of-the-candidates-own-value",
        TOLERANCE,
        "limit = ULP_FACTOR * self._info.eps * self._finite(o).abs_()",
        "limit = ULP_FACTOR * self._info.eps * self._finite(g).abs_()",
        (f"{EDGES}::test_got_and_oracle_are_not_interchangeable",),
        "F20",
    ),
    Mutant("ulps-by-the-thousand", TOLERANCE, "ULP_FACTOR = 4.0", "ULP_FACTOR = 4000.0", (ELEMENT,)),
    Mutant("tile-factor-tenfold", TOLERANCE, "TILE_FACTOR = 3.0", "TILE_FACTOR = 30.0", (CLUSTER,)),
    Mutant("many-coarse-tiles-excused", TOLERANCE, "SELDOM = 2.0, 1e-4", "SELDOM = 2.0, 1e-1", (SELDOM,)),
    Mutant("coarse-tiles-excused-however-far", TOLERANCE, "if not far and coarse", "if coarse", (SELDOM,)),
    Mutant(
        "element-factor-hundredfold",
        TOLERANCE,
        "TILE_TO_ELEMENT = 12.0",
        "TILE_TO_ELEMENT = 1200.0",
        (ELEMENT,),
    ),
    Mutant("slack-dropped", TOLERANCE, "limit *= slack", "limit *= 1.0", (SLACK,), "D17"),
    Mutant(
        "last-tile-skipped",
        TOLERANCE,
        "last = min(first + per_span, count)",
        "last = min(first + per_span, max(count - 1, 1))",
        (BLOCKS,),
        "D10",
    ),
    Mutant(
        "last-short-tile-skipped",
        TOLERANCE,
        "return torch.cat([largest, rest.amax().reshape(1)]) if rest.numel() else largest",
        "return torch.cat([largest, rest.new_zeros(1)]) if rest.numel() else largest",
        (ELEMENT,),
        "D10",
    ),
    Mutant(
        "only-the-first-block-compared",
        TOLERANCE,
        "for first in range(0, count, per_span):",
        "for first in range(0, min(count, 1), per_span):",
        (BLOCKS,),
        "D10",
    ),
    Mutant(
        "every-element-a-near-tie",
        TOLERANCE,
        "jumps = sensitivity > JUMP_FACTOR * limit",
        "jumps = torch.ones_like(special)",
        (CLUSTER,),
    ),
    Mutant(
        "honest-errors-not-learned",
        TOLERANCE,
        "self._honest_rms[span.tiles] = torch.maximum(self._honest_rms[span.tiles], rms)",
        "self._honest_rms[span.tiles] += 0.0 * rms",
        (HONEST,),
    ),
    Mutant(
        "honest-errors-added-up",
        TOLERANCE,
        "self._honest_rms[span.tiles] = torch.maximum(self._honest_rms[span.tiles], rms)",
        "self._honest_rms[span.tiles] += rms",
        (f"{EDGES}::test_a_variant_that_was_learned_before_widens_nothing",),
    ),
    Mutant(
        "large-elements-lend-tolerance",
        TOLERANCE,
        "return torch.minimum(by_tile, TILE_TO_ELEMENT",
        "return torch.maximum(by_tile, TILE_TO_ELEMENT",
        (LARGE_AND_SMALL,),
        "F13",
    ),
    Mutant(
        "one-size-for-all-elements",
        "correctness/tolerance.py",
        "            if by_size and not alike(",
        "            if False and not alike(",
        (LARGE_AND_SMALL,),
        "F13",
    ),
    Mutant(
        "typical-errors-for-rare-ones",
        "correctness/magnitudes.py",
        "torch.where(classes == k, share, 0.0).amax()",
        "torch.where(classes == k, share, 0.0).mean()",
        (f"{EDGES}::test_what_is_left_of_large_terms_may_be_as_wrong_as_they_are",),
        "F13",
    ),
    Mutant(
        "tolerance-borrowed-over-a-gap",
        "correctness/magnitudes.py",
        "if counts[k] < FEW and counts[k - 1]:",
        "if counts[k] < FEW:",
        (f"{EDGES}::test_a_small_element_is_held_though_it_stands_alone",),
        "F13",
    ),
    Mutant(
        "low-precision-excuses-small-elements",
        "correctness/tolerance.py",
        "OWN_SHARE, LOW_OWN_SHARE = 0.5, 0.125",
        "OWN_SHARE, LOW_OWN_SHARE = 0.5, 32.0",
        (f"{EDGES}::test_small_elements_keep_their_own_precision_in_low_ones",),
        "F13",
    ),
    Mutant(
        "near-one-in-the-results-precision",
        "correctness/honest.py",
        "return min(1.0, _NEAR_ONE_ERROR / max(abs(amplitude), _NEAR_ONE_ERROR))",
        "return 1.0",
        (f"{EDGES}::test_sigmoids_may_be_made_of_numbers_near_one",),
        "F13",
    ),
)

_YARDSTICK = (
    Mutant(
        "only-the-first-output", YARDSTICK, "_merged(reports)\n", "_merged(reports[:1])\n", (OUTPUTS,), "D9"
    ),
    Mutant("only-the-last-output", YARDSTICK, "ok=not failing", "ok=reports[-1].ok", (OUTPUTS,), "D16"),
    Mutant(
        "tolerance-argument-dropped",
        YARDSTICK,
        "tolerance.compare(out, self._slack)",
        "tolerance.compare(out, 1.0)",
        (SLACK,),
        "D17",
    ),
    Mutant(
        "tolerance-keyed-on-another-dtype",
        YARDSTICK,
        "FloatTolerance(o, n.dtype, k, floor)",
        "FloatTolerance(o, torch.bfloat16, k, floor)",
        (WRONG,),
        "F12",
    ),
    Mutant(
        "integers-compared-with-tolerance",
        YARDSTICK,
        "wrong = got != oracle",
        "wrong = (got.double() - oracle.double()).abs() > 1",
        (INTEGERS,),
    ),
    Mutant(
        "integers-near-any-variant",
        YARDSTICK,
        "wrong &= got != variant",
        "wrong &= (got.double() - variant.double()).abs() > 1",
        (INTEGERS,),
    ),
    Mutant(
        "honest-variants-never-run",
        YARDSTICK,
        "if level >= 1 and self._level < 1:",
        "if level >= 1 and self._level > 1:",
        (HONEST,),
        "F14",
    ),
    Mutant(
        "rounded-oracle-for-everyone",
        YARDSTICK,
        'floor = 1.0 if reference.oracle == "float64" else ROUNDED_ORACLE_FLOOR',
        "floor = 1000.0",
        (WRONG,),
        "F1",
    ),
    Mutant(
        "sums-err-like-single-numbers",
        HONEST_RUNS,
        "self._chain * math.sqrt(min(depth, _CHAIN_COUNTED))",
        "self._chain",
        (f"{ORDERS}::test_sums_in_the_worst_order_are_honest",),
    ),
    Mutant(
        "sums-may-err-without-bound",
        HONEST_RUNS,
        "self._chain * math.sqrt(min(depth, _CHAIN_COUNTED))",
        "self._chain * depth",
        (f"{ORDERS}::test_products_one_by_one_are_honest_and_coarse_operands_are_not",),
        "F1",
    ),
    Mutant(
        "chains-without-end",
        HONEST_RUNS,
        "for part in x.split(_CHAIN_LONGEST, dim=-1):",
        "for part in (x,):",
        (f"{ORDERS}::test_a_sample_of_a_very_long_sum_is_no_sum",),
        "D8",
    ),
    Mutant(
        "any-place-will-do",
        TIES,
        "same = _named(tensor, dim, got) == _named(tensor, dim, oracle)",
        "same = _named(tensor, dim, got) <= _named(tensor, dim, oracle)",
        (f"{ORDERS}::test_any_place_of_an_equal_element_is_right",),
        "F18",
    ),
    Mutant(
        "one-place-named-twice",
        TIES,
        "return same & (_distinct(got, dim) | ~_distinct(oracle, dim))",
        "return same",
        (f"{ORDERS}::test_any_place_of_an_equal_element_is_right",),
        "F18",
    ),
    Mutant(
        "numbers-taken-for-places",
        TIES,
        "if torch.equal(_named(untied[k], dim, before), _named(turned[k], dim, ask(turned))):",
        "if before is not None:",
        (f"{ORDERS}::test_integers_that_name_no_places_must_be_equal",),
        "F18",
    ),
    Mutant(
        "task-check-ignored",
        YARDSTICK,
        "Report(complaint is None, ratio",
        "Report(True, ratio",
        (f"{CALIBRATED}::test_a_task_with_its_own_check_is_asked_instead",),
    ),
    Mutant(
        "only-the-first-part-compared",
        YARDSTICK,
        "            reports.append(first)\n            continue\n",
        "            return merged_parts([first])\n",
        (f"{SPLIT}::test_the_outcome_is_that_of_the_whole",),
        "D10",
    ),
    Mutant(
        "last-part-left-out",
        PARTS,
        "for first in range(rows.start, rows.stop, size):",
        "for first in range(rows.start, rows.stop - size, size):",
        (SPLIT,),
        "D10",
    ),
    Mutant(
        "first-part-speaks-for-all",
        PARTS,
        "ok=not failing",
        "ok=reports[0][1].ok",
        (f"{SPLIT}::test_the_outcome_is_that_of_the_whole",),
        "D16",
    ),
    Mutant(
        "rows-cut-apart-untried",
        PARTS,
        "return distance(joined, together) <= SAME and",
        "return True or",
        (f"{SPLIT}::test_rows_that_know_of_each_other_stay_together",),
    ),
    Mutant(
        "integers-point-anywhere",
        PARTS,
        "return not all_cut or any(",
        "return False and any(",
        (f"{SPLIT}::test_no_part_is_tried_whose_integers_would_point_outside",),
    ),
)

_FUSED = (
    Mutant(
        "fused-kernels-never-met",
        HONEST_RUNS,
        "self.can_be_fused |= same",
        "self.can_be_fused |= False",
        (f"{GRADIENTS}::test_fused_gradients_are_honest",),
    ),
    Mutant(
        "outputs-as-exact-as-their-sum",
        RECIPES,
        "torch.maximum(size, mean.abs()) for size in",
        "mean.abs() + 0 * size for size in",
        (f"{GRADIENTS}::test_fused_gradients_are_honest",),
    ),
    Mutant(
        "whatever-is-returned-outputs-were-rounded-low",
        YARDSTICK,
        "stored = min((torch.finfo(t.dtype).eps for t in self.native if t.is_floating_point()), default=0.0)",
        "stored = 2**-7",
        (f"{GRADIENTS}::test_what_is_returned_in_float32_is_made_of_outputs_in_float32",),
        "F20",
    ),
)

MUTANTS = (*_TOLERANCE, *_YARDSTICK, *_FUSED)
