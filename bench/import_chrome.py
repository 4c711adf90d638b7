#!/usr/bin/env python3
"""How long the import of a large Chrome trace takes, and how much memory: the events of a recorded training, again and
again, each time 10 ms later.

    bench/import_chrome.py [PROGRAMS [MEGABYTES]]     default: build/release/bin 200
"""
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def write(path, size):
    with open(os.path.join(HERE, "../tests/imports/kineto_training.json")) as file:
        text = file.read()
    begin = text.index('"traceEvents": [') + len('"traceEvents": [')
    end = text.rindex('],"traceName"')
    events = text[begin:end].strip()
    parts = re.split(r'("ts": )([0-9.]+)', events)
    copies = max(1, size // len(events))
    with open(path, "w") as file:
        file.write(text[:begin])
        for k in range(copies):
            shifted = [f"{float(p) + 10000 * k:.3f}" if i % 3 == 2 else p for i, p in enumerate(parts)]
            file.write((",\n" if k > 0 else "") + "".join(shifted))
        file.write(text[end:])
    return copies * events.count('"ph":')


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/release/bin")
    size = int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 200_000_000
    with tempfile.TemporaryDirectory() as folder:
        source, trace = os.path.join(folder, "large.json"), os.path.join(folder, "trace.json")
        events = write(source, size)
        start = time.monotonic()
        subprocess.run([os.path.join(programs, "ckpt-profile"), "--import", source, "-o", trace], check=True,
                       stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"{os.path.getsize(source) / 1e6:.0f} MB, {events} events: {seconds:.1f} s, {peak / 1e6:.0f} MB at most; "
              f"trace of {os.path.getsize(trace) / 1e6:.0f} MB")


main()
