"""Bugs at the process edge: messages, frames, delivery, placement, tripwires, and the records they use."""

from __future__ import annotations

from mutant import Mutant

MESSAGES = "worker/messages.py"
DELIVERY = "worker/delivery.py"
PLACEMENT = "worker/placement.py"
PROTOCOL = "worker/protocol.py"
TRIPWIRES = "worker/tripwires.py"
HANDLE = "worker/handle.py"
CHILD = "worker/child.py"
ARENA = "worker/arena.py"
PROCESSES = "sandbox/processes.py"
CODEC = "records/codec.py"

FRAMES = "null/test_protocol.py"
RECORDS = "null/test_records.py"
STRICT = f"{RECORDS}::test_what_does_not_fit_is_refused_with_its_path"
OUTWARD = "cpu/test_screen.py"
PLACES = "cpu/test_values_layouts.py"
BURSTS = f"{FRAMES}::test_forged_bursts_reject_the_candidate"

_MESSAGES = (
    Mutant(
        "any-number-of-names",
        MESSAGES,
        'len(plain) > MOST_ITEMS:\n        raise forged("not a list of names")',
        'len(plain) < 0:\n        raise forged("not a list of names")',
        (f"{FRAMES}::test_lists_have_an_end",),
        "A12",
    ),
    Mutant(
        "any-number-of-facts",
        MESSAGES,
        'len(plain) > MOST_ITEMS:\n        raise forged("not a list")',
        'len(plain) < 0:\n        raise forged("not a list")',
        (f"{FRAMES}::test_lists_have_an_end",),
        "A12",
    ),
    Mutant(
        "texts-of-any-length",
        MESSAGES,
        "if any(len(text) > LONGEST_TEXT or not text.isprintable() for text in texts):",
        "if any(not text.isprintable() for text in texts):",
        (f"{FRAMES}::test_texts_that_are_long_or_not_printable_are_forged",),
        "A15",
    ),
    Mutant(
        "control-characters-in-texts",
        MESSAGES,
        "if any(len(text) > LONGEST_TEXT or not text.isprintable() for text in texts):",
        "if any(len(text) > LONGEST_TEXT for text in texts):",
        (f"{FRAMES}::test_texts_that_are_long_or_not_printable_are_forged",),
        "A15",
    ),
    Mutant(
        "negative-times-accepted",
        MESSAGES,
        "        0 <= value < MOST_US for value in",
        "        value < MOST_US for value in",
        (f"{FRAMES}::test_impossible_samples_are_forged",),
        "A16",
    ),
    Mutant(
        "nan-times-accepted",
        MESSAGES,
        "    if not all(\n        0 <= value < MOST_US for",
        "    if any(\n        value < 0 or value >= MOST_US for",
        (f"{FRAMES}::test_impossible_samples_are_forged",),
        "D12",
    ),
    Mutant(
        "fewer-answers-than-calls",
        MESSAGES,
        "if not isinstance(answers, list) or len(answers) != count:",
        "if not isinstance(answers, list) or len(answers) > count:",
        (BURSTS,),
        "B7",
    ),
    Mutant(
        "impossible-counts-accepted",
        MESSAGES,
        "if not (0 <= counted.calls < MOST_US and 0 <= counted.time_us < MOST_US):",
        "if counted.calls >= MOST_US or counted.time_us >= MOST_US:",
        (f"{FRAMES}::test_impossible_counts_are_forged",),
        "A12",
    ),
    Mutant(
        "forged-message-becomes-a-crash",
        MESSAGES,
        'CandidateFailure("rejected", "forged_message"',
        'CandidateFailure("crashed", "forged_message"',
        (f"{FRAMES}::test_forged_facts_reject_the_candidate",),
        "A12",
    ),
    Mutant(
        "child-chooses-its-status",
        HANDLE,
        'if status not in ("crashed", "build_failed", "wrong"):',
        "if not isinstance(status, str):",
        (f"{FRAMES}::test_a_child_cannot_claim_any_status",),
        "A12",
    ),
    Mutant(
        "stopping-not-waited-for",
        PROCESSES,
        'in b"RSD" and time',
        'in b"" and time',
        ("null/test_standing_still.py::test_it_has_stopped_by_then",),
    ),
    Mutant(
        "own-threads-not-waited-for",
        PROCESSES,
        '== b"R" and time',
        '== b"" and time',
        ("null/test_standing_still.py::test_threads_of_our_own_are_waited_for_but_not_without_end",),
    ),
    Mutant(
        "what-all-walk-over-can-be-changed",
        ARENA,
        "_SEALS | (_SEAL_WRITE if self._constant else 0)",
        "_SEALS",
        ("cpu/test_values_layouts.py::test_nobody_changes_for_others_what_all_walk_over",),
        "A2",
    ),
    Mutant(
        "oversized-frames-read",
        PROTOCOL,
        "if head_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:",
        "if head_bytes > MAX_HEADER_BYTES and payload_bytes > MAX_PAYLOAD_BYTES:",
        (f"{FRAMES}::test_oversized_frames_are_refused_from_their_header_alone",),
    ),
    Mutant(
        "nan-in-json-accepted",
        PROTOCOL,
        "head = json.loads(text, parse_constant=_refuse_constant)",
        "head = json.loads(text)",
        (f"{FRAMES}::test_what_is_no_strict_object_is_refused",),
        "D12",
    ),
    Mutant(
        "anything-is-a-message",
        PROTOCOL,
        "    if not isinstance(head, dict):\n",
        "    if head is None:\n",
        (f"{FRAMES}::test_what_is_no_strict_object_is_refused",),
        "A12",
    ),
    Mutant(
        "frames-run-together",
        PROTOCOL,
        "del self._buffer[:end]",
        "self._buffer.clear()",
        (f"{FRAMES}::test_messages_arrive_whole_and_in_order",),
    ),
)

_DELIVERY = (
    Mutant(
        "input-passed-through",
        DELIVERY,
        "if inputs.data_ptr() <= address < inputs.data_ptr() + inputs.numel():",
        "if inputs.data_ptr() == address:",
        (f"{OUTWARD}::test_what_shares_memory_is_told",),
        "D3",
    ),
    Mutant(
        "shared-buffer-not-told",
        DELIVERY,
        "_storage_address(other) == start:",
        "_storage_address(other) == start < 0:",
        (f"{OUTWARD}::test_what_shares_memory_is_told",),
        "D21",
    ),
    Mutant(
        "only-the-first-kept-output-compared",
        DELIVERY,
        "    for kept in held:\n",
        "    for kept in held[:1]:\n",
        (f"{OUTWARD}::test_what_shares_memory_is_told",),
        "D21",
    ),
    Mutant(
        "subclasses-are-plain",
        DELIVERY,
        "type(tensor) in (torch.Tensor, torch.nn.Parameter) and",
        "isinstance(tensor, torch.Tensor) and",
        (f"{OUTWARD}::test_only_plain_tensors_are_copied_out",),
        "B3",
    ),
    Mutant(
        "delivered-without-a-copy",
        DELIVERY,
        '"delivered": plain and end <= mailbox.numel(),',
        '"delivered": plain,',
        (f"{OUTWARD}::test_what_does_not_fit_is_not_delivered",),
        "A12",
    ),
    Mutant(
        "expanded-views-are-whole",
        PLACEMENT,
        "return any(n > 1 and s == 0 for n, s in lengths) or",
        "return any(n < 1 and s == 0 for n, s in lengths) or",
        (f"{OUTWARD}::test_work_left_to_whoever_copies_is_lazy",),
        "D9",
    ),
    Mutant(
        "conjugation-left-to-the-copy",
        PLACEMENT,
        "or torch.is_conj(tensor) or torch.is_neg(tensor)",
        "or torch.is_neg(tensor)",
        (f"{OUTWARD}::test_work_left_to_whoever_copies_is_lazy",),
        "B3",
    ),
    Mutant(
        "places-touch-each-other",
        PLACEMENT,
        "cursor = -(-(end + 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES",
        "cursor = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES",
        (f"{PLACES}::test_consecutive_places_leave_a_byte_between_them",),
        "G10",
    ),
    Mutant(
        "places-outside-the-arena",
        PLACEMENT,
        "if run.numel() != self.end_bytes - self.offset_bytes:",
        "if run.numel() > self.end_bytes - self.offset_bytes:",
        (f"{PLACES}::test_a_place_outside_its_arena_is_refused",),
        "G10",
    ),
    Mutant(
        "replaced-names-not-told",
        TRIPWIRES,
        "if now[name] != before[name]]",
        "if name not in before]",
        (f"{OUTWARD}::test_a_replaced_name_is_told",),
        "A1",
    ),
    Mutant(
        "replaced-code-not-told",
        TRIPWIRES,
        "return (hash(value) if code is None else id(code)), id(code)",
        "return hash(value), 0",
        (f"{OUTWARD}::test_replaced_code_under_the_same_function_is_told",),
        "A5",
    ),
    Mutant(
        "aliases-not-told",
        CHILD,
        'fact["aliases"] = shared_with(leaf, self._input_bytes(), self._held)',
        'fact["aliases"] = shared_with(leaf, self._input_bytes()[:0], [])',
        ("cpu/test_cases.py::test_memory_of_an_input_is_no_output",),
        "D3",
    ),
    Mutant(
        "tensors-made-anew-for-each-call",
        CHILD,
        "if placement not in self._views:",
        "if placement in self._views or True:",
        ("cpu/test_cases.py::test_the_same_tensor_object_comes_back_with_new_contents",),
        "C2",
    ),
)

_RECORDS = (
    Mutant(
        "unknown-fields-accepted",
        CODEC,
        "if unknown := sorted(set(given) - set(known)):",
        "if unknown := sorted(set(given) - set(given)):",
        (STRICT,),
        "A12",
    ),
    Mutant(
        "any-status-accepted",
        CODEC,
        'given.pop("status", None) != status:',
        'given.pop("status", status) is None:',
        (STRICT,),
        "A12",
    ),
    Mutant(
        "booleans-are-integers",
        CODEC,
        "if hint in (int, str, bool) and type(plain) is hint:",
        "if hint in (int, str, bool) and isinstance(plain, hint):",
        (STRICT,),
    ),
    Mutant(
        "booleans-are-floats",
        CODEC,
        "isinstance(plain, (int, float)) and not isinstance(plain, bool):",
        "isinstance(plain, (int, float)):",
        (STRICT,),
    ),
    Mutant(
        "infinity-loses-its-sign",
        CODEC,
        '("Infinity" if value > 0 else "-Infinity")',
        '("Infinity" if value else "-Infinity")',
        (f"{RECORDS}::test_special_floats_are_words_not_tokens",),
    ),
    Mutant(
        "digests-run-parts-together",
        CODEC,
        '        h.update(len(data).to_bytes(8, "big"))\n',
        "",
        (f"{RECORDS}::test_digests_do_not_run_parts_together",),
    ),
    Mutant(
        "every-verdict-decoded-as-the-first-kind",
        "records/decoding.py",
        "        if kind.status == status:\n",
        "        if kind.status:\n",
        ("null/test_decide.py::test_the_status_says_which_kind_a_record_is",),
        "A12",
    ),
)

MUTANTS = (*_MESSAGES, *_DELIVERY, *_RECORDS)
