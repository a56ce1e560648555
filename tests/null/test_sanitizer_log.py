"""compute-sanitizer's log read by kind, kernel and place, in the words of several of its versions."""

from __future__ import annotations

import pytest

from assay.build.sanitizer_log import SanitizerReport, read_sanitizer_log

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
OVERRUN = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at scale_kernel+0x150 in candidate.py:12
=========     by thread (104,0,0) in block (3,0,0)
=========     Address 0x7f42d5a00fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f42d5a00000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch(float *)+0x12 [0x2c28f5] in libcuda.so.1
=========
========= Invalid __shared__ write of size 8 bytes
=========     at void second<float, (int)4>(T1 *, const T1 *)+0x1f0
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x1000 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at halves(const float *, float *, int)+0xe0 in race.cu:7
=========     and Read access at halves(const float *, float *, int)+0x1c0 in race.cu:8 [508 hazards]
=========
========= Warning: Race reported between Write access at warps(float *)+0x90 in race.cu:21
=========     and Read access at warps(float *)+0xa0 in race.cu:22 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
UNINITIALISED = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at add(float *, int)+0x70 in a folder/add.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
BARRIER = """========= Barrier error detected. Divergent thread(s) in block.
=========     at wait_for(int)+0xbb10 in part.cuh:98
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: inner(int)+0x20 in part.cuh:120
=========         Device Frame: outer_kernel(int *, int)+0x1f0 in part.cu:53
=========
========= ERROR SUMMARY: 1 error
"""


def only(text: str) -> SanitizerReport:
    (report,) = read_sanitizer_log(text).reports
    return report


def test_a_clean_log_is_complete_and_empty() -> None:
    log = read_sanitizer_log(CLEAN)
    assert (log.reports, log.complete, log.errors, log.troubles) == ((), True, 0, ())


def test_overruns_with_kernel_line_and_distance() -> None:
    log = read_sanitizer_log(OVERRUN)
    first, second = log.reports
    assert (first.kind, first.kernel, first.location) == ("error", "scale_kernel", "candidate.py:12")
    assert first.text.startswith("Invalid __global__ read of size 4 bytes")
    assert "1 bytes after the nearest allocation" in first.text
    assert (second.kernel, second.location) == ("void second<float, (int)4>(T1 *, const T1 *)", "")
    assert log.errors == 2 and log.complete


def test_races_are_errors_and_warnings() -> None:
    log = read_sanitizer_log(RACE)
    error, warning = log.reports
    assert (error.kind, warning.kind) == ("error", "warning")
    assert (error.kernel, error.location) == ("halves(const float *, float *, int)", "race.cu:7")
    assert error.text.startswith("Race reported between Write access") and "and Read access" in error.text
    assert (log.complete, log.errors) == (True, 1)


def test_uninitialised_memory() -> None:
    report = only(UNINITIALISED)
    assert (report.kind, report.kernel, report.location) == ("error", "add(float *, int)", "add.cu:41")


def test_the_outermost_frame_is_the_kernel_and_the_place_is_where_it_happened() -> None:
    report = only(BARRIER)
    assert (report.kernel, report.location) == ("outer_kernel(int *, int)", "part.cuh:98")
    assert report.text == "Barrier error detected. Divergent thread(s) in block."


@pytest.mark.parametrize(
    ("place", "kernel", "location"),
    [
        ("at 0x100 in /a/folder/sum.cl:30:total(const int *)", "total(const int *)", "sum.cl:30"),
        ("at 0x88 in ns::kernel(float *)", "ns::kernel(float *)", ""),
        ("at plain():0x160 in demo.cu:6", "plain()", "demo.cu:6"),
        ("at (anonymous namespace)::hidden(int)+0x20", "(anonymous namespace)::hidden(int)", ""),
        ("Device Frame:/x/demo.cu:20:named(int*) (named(int*) : 0x8f0)", "named(int*)", ""),
        ("Device Frame: matmul_kernel at line 462", "matmul_kernel", ""),
        ("Device Frame:framed() [0xb0]", "framed()", ""),
    ],
)  # fmt: skip
def test_other_ways_to_name_a_place(place: str, kernel: str, location: str) -> None:
    report = only(f"========= Something nobody has seen before\n=========     {place}\n")
    assert (report.kind, report.kernel, report.location) == ("error", kernel, location)


def test_what_names_no_kernel_is_a_note() -> None:
    text = "========= Host API uninitialized memory access of size 8\n=========     on access 0x7f\n"
    report = only(text + "========= ERROR SUMMARY: 1 error\n")
    assert (report.kind, report.kernel) == ("note", "")
    assert report.text.startswith("Host API uninitialized")


def test_errors_of_the_api_are_not_the_kernels() -> None:
    text = (
        '========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on '
        "CUDA API call to cudaDeviceSynchronize.\n=========     Saved host backtrace up to driver entry\n"
        "=========     Host Frame: main [0x17] in python\n========= ERROR SUMMARY: 1 error\n"
    )
    log = read_sanitizer_log(text)
    assert log.reports == () and log.complete


def test_a_log_without_its_summary_is_not_complete() -> None:
    log = read_sanitizer_log(OVERRUN.replace("========= ERROR SUMMARY: 2 errors\n", ""))
    assert len(log.reports) == 2 and not log.complete
    assert not read_sanitizer_log("").complete


@pytest.mark.parametrize(
    "words",
    [
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Error: Target application terminated before first instrumented API call",
        "Target application returned an error",
        "Internal Sanitizer Error: The Sanitizer encountered an error while loading a module",
    ],
)
def test_what_the_tool_says_of_itself_is_no_report(words: str) -> None:
    log = read_sanitizer_log(f"========= COMPUTE-SANITIZER\n========= {words}\n")
    assert (log.reports, log.troubles) == ((), (words,))


def test_errors_that_were_not_printed_count() -> None:
    unprinted = "========= ERROR SUMMARY: 60 errors were not printed. Re-run with --print-limit 62\n"
    log = read_sanitizer_log(OVERRUN.replace("SUMMARY: 2 errors", "SUMMARY: 62 errors") + unprinted)
    assert (len(log.reports), log.errors) == (2, 62)
    assert not read_sanitizer_log(unprinted).complete


def test_only_the_tool_s_lines_are_read() -> None:
    """What the program printed may stand between them."""
    text = "Invalid __global__ read of size 4 bytes\n    at printed+0x10\nERROR SUMMARY: 5 errors\n"
    log = read_sanitizer_log(text)
    assert (log.reports, log.complete) == ((), False)
    assert only(text + UNINITIALISED).kernel == "add(float *, int)"


def test_unindented_details_belong_to_what_they_follow() -> None:
    text = "========= Invalid __global__ write of size 4 bytes\n========= at flat()+0x30 in f.cu:3\n"
    text += "========= by thread (0,0,0) in block (0,0,0)\n========= Address 0x8 is misaligned\n"
    report = only(text)
    assert (report.kernel, report.location) == ("flat()", "f.cu:3") and "misaligned" in report.text
