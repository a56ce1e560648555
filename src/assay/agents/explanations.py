"""What statuses and finding codes mean, and what to do about them: docs/records.md for somebody who can ask.

A test holds this table and the codes that the judge can give together. Not covered: the words of one finding,
which the verdict has itself.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from assay.records import UserError


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code in two sentences."""

    meaning: str
    advice: str


_FILE = "Define class ModelNew (with Model's constructor and parameter names), or a function forward."
_ANSWER = "Return what Model.forward() returns: same nesting, shapes, dtypes and device."
_LAUNCH = (
    "Correct the `// assay:` lines: let, out, launch kernel<<<grid, block>>>(...) or call f(...), return."
)
_MEMORY = "Use less memory: work in place of temporaries, in tiles, or without copies."
_HONEST = "Remove it. The judge measures what one call does by itself; the numbers are no excuse."
_RETRY = "Not your kernel's doing as far as is known: ask again; if it stays, tell whoever runs the judge."

STATUSES = {
    "passed": Explanation(
        "Every declared and hidden case is right and nothing forbidden was found. Speed is told apart.",
        "Look at `speed`: only outcome `faster` beats the best baseline. Being slow is no failure.",
    ),
    "wrong": Explanation(
        "At least one output is further from the float64 oracle than the tolerance, or has a wrong form.",
        "Look at the first mismatches: which case, which index. Hidden cases vary size, strides and scale.",
    ),
    "rejected": Explanation(
        "The numbers may be right, the way they were made is not acceptable. The fatal finding says why.",
        "Ask for an explanation of the fatal finding's code.",
    ),
    "build_failed": Explanation(
        "It did not compile, import or construct.", "Read the diagnosis: the first error, with its line."
    ),
    "crashed": Explanation(
        "It raised, died or ran out of memory while it was called.",
        "Read how it died; check bounds, launch sizes and inputs with zero rows.",
    ),
    "timed_out": Explanation(
        "It did not answer within its limit; the code says in which phase.",
        "Look for endless loops, dead locks and tuning at run time.",
    ),
    "no_verdict": Explanation("The judge itself failed; this says nothing about the candidate.", _RETRY),
    "unreadable": Explanation(
        "The text is no candidate: empty, too long, or without an entry.",
        _FILE + " C++ and CUDA: see bad_directive.",
    ),
    "refused": Explanation(
        "A case's outcome: a clean error on a case that the problem never declared. That is allowed.",
        "Nothing has to be done; supporting the case makes the kernel more useful.",
    ),
    "not_run": Explanation("A case's outcome: the run ended before it.", "Mend what ended the run."),
    "faster": Explanation(
        "The whole interval of the speed ratio lies above 1 by the margin: it beats the best baseline.",
        "Go on while percent of the physical limit leaves room.",
    ),
    "slower": Explanation(
        "The whole interval of the speed ratio lies below 1 by the margin.",
        "Compare its time with each baseline and with the limit; find out what takes the time.",
    ),
    "no difference": Explanation(
        "The interval of the speed ratio holds 1: the clock cannot tell it from the best baseline.",
        "A larger change is needed; repeating the measurement does not help.",
    ),
}

RESULTS = {
    "output_type": Explanation(
        "The output holds something that is no tensor, number or nest of them.", _ANSWER
    ),
    "state_not_kept": Explanation(
        "Buffers (running statistics, say) are part of the answer, and it keeps none of that name.",
        "Keep buffers under Model's names and update them as Model does.",
    ),
    "wrong_when_kept": Explanation(
        "One of many calls in a row gave a wrong result, though single calls are right.",
        "Do not reuse memory between calls; do not rely on what an earlier call left behind.",
    ),
    "wrong_when_timed": Explanation(
        "Right when it was checked, wrong on a timed call.",
        "Look for races, missing synchronisation, and anything that depends on time or on earlier calls.",
    ),
    "nondeterministic": Explanation(
        "Two calls on one input differ in bits. Fatal only where the problem asks for equal bits.",
        "Avoid atomics whose order varies; fix the order of sums.",
    ),
    "unmatched_state": Explanation(
        "Parameters that start as constants have no counterpart by name and cannot be given other values.",
        "Name parameters and buffers exactly as Model does.",
    ),
    "ignores_stream": Explanation(
        "A call on another CUDA stream gave wrong results: it does not wait for the current stream.",
        "Launch on torch.cuda.current_stream().",
    ),
}

REJECTIONS = {
    "input_modified": Explanation(
        "It wrote into its inputs, or into the gaps between their elements.",
        "Allocate outputs and temporaries; treat inputs as read-only, padding and strides included.",
    ),
    "aliased_output": Explanation(
        "An output shares memory with an input or with an earlier output.",
        "Allocate a new output in every call, even if it equals an input.",
    ),
    "late_write": Explanation(
        "An output changed after it was returned.",
        "Finish all work on the current stream; start no threads that go on writing.",
    ),
    "patched_names": Explanation("Clocks, synchronisation or comparison functions were replaced.", _HONEST),
    "forged_message": Explanation("It sent the judge something other than its answer.", _HONEST),
    "refused_contents": Explanation(
        "It refuses inputs for their values alone.",
        "Handle every value the dtype has, special ones included.",
    ),
    "refused_every_test": Explanation(
        "It refused every case that tells a right answer from a wrong one, so nothing is shown.",
        "Support sizes, strides and scales beyond those of get_inputs().",
    ),
    "library_calls": Explanation(
        "Library code does work where the rules forbid it.",
        "Write that part in your own kernel; allocating, viewing and copying stay allowed.",
    ),
    "kernel_does_not_matter": Explanation(
        "Its answer is right with its own kernels left out. Fatal where library calls are forbidden.",
        "Let the kernel compute the answer; remove fallbacks that do all of the work.",
    ),
    "census_failed": Explanation(
        "Library calls are forbidden and what it runs cannot be counted.",
        "Make it run under the profiler: no processes of its own, no replaced torch functions.",
    ),
    "clocks_disagree": Explanation(
        "By the judge's clock it takes longer than it says, or leaves something out around its calls.",
        "Do all work inside the call and on the current stream: nothing in threads or in later calls.",
    ),
    "opponent_disturbed": Explanation(
        "The baseline was slower or failed beside the candidate.",
        "Leave nothing running and hold no more memory, threads or clocks than the call needs.",
    ),
    "faster_than_physics": Explanation(
        "Its time lies below what the device allows for this work, so the work was not done when timed.",
        "Compute everything in every call; remember nothing of earlier inputs.",
    ),
    "persisting_l2": Explanation(
        "It sets part of the L2 cache aside and leaves it so.",
        "Undo it before the call returns, or leave it out.",
    ),
    "process_while_timed": Explanation("Processes that it started run while others are timed.", _HONEST),
    "ran_while_frozen": Explanation("It ran while it was made to stand still.", _HONEST),
}

NOTES = {
    "refused_case": Explanation(
        "A note: it raised a clean error on a size or layout that the problem allows but never declared.",
        "Support it if you can; the verdict does not depend on it.",
    ),
    "gain_not_confirmed": Explanation(
        "Faster in timed calls, but not by the other clocks it must hold on; the outcome is `no difference`.",
        "Look at latency and calls in a row: the gain must not come from the way single calls are timed.",
    ),
    "raced_again": Explanation(
        "A first race raised doubts of its times, as whatever else a CPU does may; this is of a second.",
        "Nothing; it is a note. Doubts that are no noise come back and reject it.",
    ),
    "throttled_samples": Explanation(
        "Samples were left out because the device's clock fell.", "Nothing; it is a note."
    ),
    "downgraded_unseen": Explanation(
        "This problem cannot tell a lower precision from the specified one.",
        "Nothing; keep to the precision asked for.",
    ),
    "linearised_unseen": Explanation(
        "This problem cannot tell a linearised activation from the specified one.",
        "Nothing; compute the real one.",
    ),
    "reduced_size": Explanation(
        "The nominal size does not fit on this device; a smaller one was judged.",
        "Nothing; times are of that size.",
    ),
    "not_inspected": Explanation(
        "A tool of compute-sanitizer could not look; the message says why.", "Nothing."
    ),
    "memcheck": Explanation(
        "compute-sanitizer found accesses outside memory; fatal in its own kernels.",
        "Mask loads and stores at the ends; check every index against the sizes, not the block.",
    ),
    "racecheck": Explanation(
        "compute-sanitizer found threads that race in shared memory; fatal in its own kernels.",
        "Put __syncthreads() between writing and reading shared memory. Where two writes of one Triton line"
        + " race, threads share a sum of products whose last bits differ: sum tl.fma(a, b, 0.0), not a * b.",
    ),
    "initcheck": Explanation(
        "compute-sanitizer found reads of memory nobody wrote; fatal in its own kernels without tensor maps.",
        "Write every element before it is read, and outputs in full.",
    ),
    "synccheck": Explanation(
        "compute-sanitizer found barriers that not all threads reach; fatal in its own kernels.",
        "Keep barriers out of branches that threads of one block take differently.",
    ),
}

BUILDS = {
    "compile_error": Explanation(
        "The compiler refused it.", "Mend the first error of the diagnosis; the rest follow."
    ),
    "compiler_killed": Explanation(
        "The compiler needed too much memory or time.",
        "Fewer template instances, less unrolling, smaller constants.",
    ),
    "import_failed": Explanation(
        "Importing the file raised.",
        "Import torch, triton and the standard library alone; run nothing at import time.",
    ),
    "construct_failed": Explanation(
        "ModelNew(...) raised.", "Take the arguments of get_init_inputs(), and .to(device) like any module."
    ),
    "load_state_failed": Explanation(
        "load_state_dict() raised.", "Keep parameters under Model's names and shapes; pack them in forward()."
    ),
    "state_dict_failed": Explanation("state_dict() raised.", "Leave state_dict() as torch has it."),
    "no_entry": Explanation("The file defines nothing that can be called.", _FILE),
    "not_a_module": Explanation("ModelNew is no torch.nn.Module.", "Derive it from torch.nn.Module."),
    "no_kernel": Explanation(
        "A launch line names a kernel that the source does not define.",
        'Declare it extern "C" under that name.',
    ),
    "template_kernel": Explanation(
        "The named kernel is a template.", 'Add an extern "C" wrapper with fixed types.'
    ),
    "not_extern_c": Explanation("The named kernel has a mangled name.", 'Declare it extern "C".'),
    "bad_parameter": Explanation(
        "A kernel parameter is no plain pointer or number.",
        "Pass pointers and numbers; no structs, no references.",
    ),
    "bad_directive": Explanation("A launch line cannot be read; the message names it.", _LAUNCH),
    "arity": Explanation(
        "A launch line gives the kernel another number of arguments than it takes.", _LAUNCH
    ),
    "no_binding": Explanation(
        "A source with torch headers binds nothing.",
        'Add PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
    ),
    "load_failed": Explanation(
        "The compiled file does not load.",
        "Use no symbol that is not defined; link nothing beyond the defaults.",
    ),
    "not_loaded": Explanation("It was called before it was loaded.", _RETRY),
}

DEATHS = {
    "raised": Explanation(
        "A call raised an exception.", "Read the message; try sizes 0 and 1, strided inputs, other dtypes."
    ),
    "exited": Explanation("The process ended itself.", "Do not call exit(); raise an exception instead."),
    "signal": Explanation(
        "It died of a signal, SIGSEGV say.", "Check indices, pointers and sizes, also for empty inputs."
    ),
    "killed": Explanation("It was killed, most likely for memory.", _MEMORY),
    "host_memory": Explanation("It took more host memory than it may.", _MEMORY),
    "device_memory": Explanation("It ran out of device memory, or left the judge too little.", _MEMORY),
    "disk": Explanation(
        "It wrote more files than it may.", "Write no files; compilers have caches of their own."
    ),
    "cuda_error": Explanation(
        "A CUDA error, an illegal access say. It may come from an earlier launch.",
        "Check bounds, shared memory and block sizes; judge with --deep to have the place named.",
    ),
    "closed_channel": Explanation("It closed its channel to the judge.", "Leave file descriptors alone."),
}

_WHILE = "It ran out of time while {}."
PHASES = {
    "build": Explanation(_WHILE.format("compiling"), "Fewer template instances, less unrolling."),
    "load": Explanation(_WHILE.format("importing"), "Compile and tune less at import time."),
    "construct": Explanation(
        _WHILE.format("ModelNew was constructed"), "Do no heavy work in the constructor."
    ),
    "state": Explanation(_WHILE.format("weights were given to it"), "Do no heavy work in load hooks."),
    "call": Explanation(
        _WHILE.format("it was called"),
        "Look for endless loops; tune offline: a first call may compile, not search.",
    ),
    "call_timeout": Explanation(
        _WHILE.format("its kernels ran on the device"), "Look for endless loops and dead locks."
    ),
    "burst": Explanation(
        _WHILE.format("called many times in a row"), "Look for work that grows with every call."
    ),
    "census": Explanation(_WHILE.format("its kernels were counted"), "Launch fewer kernels in one call."),
    "mute": Explanation(
        _WHILE.format("called without its own kernels"), "Do not wait in a loop for a kernel's result."
    ),
    "inspect": Explanation(
        _WHILE.format("compute-sanitizer looked at it"), "Nothing; small kernels are looked at faster."
    ),
}
_OTHERS = ("arena", "stopwatch", "sample", "caches", "refill", "held", "facts", "release", "resources")
for _phase in _OTHERS:
    PHASES[_phase] = Explanation(
        _WHILE.format("the judge asked its process for something else than a call"),
        "Leave no thread behind that keeps the interpreter or the device busy.",
    )

TABLES = (STATUSES, RESULTS, REJECTIONS, NOTES, BUILDS, DEATHS, PHASES)
CODES = {code: told for table in TABLES for code, told in table.items()}


def explain(code: str) -> Explanation:
    """What a status, an outcome or a finding's code means."""
    plain = code.strip().lower()
    found = CODES.get(plain) or CODES.get(plain.replace("_", " "))
    if found is None:
        near = difflib.get_close_matches(plain, CODES, 3)
        meant = (
            f": is it {' or '.join(near)}?" if near else ": see the list that explain gives without a code"
        )
        raise UserError(f"no status or finding is called {code[:60]!r}{meant}")
    return found


def listed() -> str:
    """Every code in one line each."""
    return "\n".join(f"{code}: {told.meaning}" for code, told in CODES.items())
