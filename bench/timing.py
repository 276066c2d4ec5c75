# SPDX-License-Identifier: MIT
"""How benchmarks time: calls in turn, so that whatever slows the machine slows all of them;
each round's time is kept. calls: {name: function}; what comes back: {name: [milliseconds]}."""
import argparse
import os
import statistics
import subprocess
import sys
import time

import torch


def keep_to_cpus(threads):
    """The process and PyTorch keep to so many CPUs. Returns the clock: with one thread it is the process's own
    time that counts, which others on the machine disturb less."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    torch.set_num_threads(threads)
    return time.process_time if threads == 1 else time.perf_counter


def on_gpu(calls, rounds=10**9, seconds=0.0, least=20, queued=False):
    """By CUDA events, the L2 cache flushed before each call: until rounds are done, or the
    seconds are spent and the least rounds done. queued: the GPU waits some 0.3 ms before each
    call, in which all of it gets queued; else what is timed of short work is Python and, of
    torch.compile, its guards."""
    # Four times an H200's L2 of 60 MB.
    cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    times = {name: [] for name in calls}
    end, done = time.monotonic() + seconds, 0
    while done < rounds and (done < least or time.monotonic() < end):
        for name, call in calls.items():
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cache.zero_()
            if queued:
                torch.cuda._sleep(500_000)
            first.record()
            call()
            last.record()
            last.synchronize()
            times[name].append(first.elapsed_time(last))
        done += 1
    return times


def several_on_gpu(call, most, milliseconds=3):
    """The mean of calls in a row, by CUDA events: as many as take so many milliseconds, `most` at
    most, after one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    count = max(1, min(most, int(milliseconds / max(begin.elapsed_time(end), 1e-3))))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def several_in_turn(calls, rounds, most):
    """The median of rounds for each of the calls, a list, by several_on_gpu()."""
    times = [[several_on_gpu(call, most) for call in calls] for _ in range(rounds)]
    return [statistics.median(taken) for taken in zip(*times)]


def add_warm(parser):
    """--warm PROCESSES: have so many compile what the cases need, before they are timed."""
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--part", help=argparse.SUPPRESS)  # i/n: only compile each n-th


def share_cases(options, cases):
    """Does what --warm says, then gives the cases of this process: all, or a part."""
    workers = [] if options.part else [
        subprocess.Popen([sys.executable, *sys.argv, "--part", f"{i}/{options.warm}"])
        for i in range(options.warm)]
    for worker in workers:
        worker.wait()
    first, step = map(int, options.part.split("/")) if options.part else (0, 1)
    return cases[first::step]


def on_cpu(calls, rounds, repeats=None, pause=0.0, clock=time.perf_counter):
    """By the clock; a time is the mean of repeats ({name: count}, default 1) after a pause of
    so many seconds, in which idle threads go to sleep, and a call that wakes them.
    clock=time.process_time counts the process's own."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            count = repeats[name] if repeats else 1
            time.sleep(pause)
            if pause:
                call()
            start = clock()
            for _ in range(count):
                call()
            times[name].append((clock() - start) / count * 1e3)
    return times


def least_on_cpu(call, seconds, clock=time.perf_counter):
    """The least milliseconds of a call in so many seconds; clock=time.process_time counts the
    process's own."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = clock()
        call()
        best = min(best, clock() - start)
    return best * 1e3


def medians(times):
    return {name: statistics.median(each) for name, each in times.items()}
