#!/usr/bin/env python3
"""The totals of a snapshot, computed backwards from its final segments: python3 snapshot_peaks.py FILE... > snapshot_expected.txt
The importer goes forwards and needs no final state for what is freed, so the two agree only when both are right."""
import os
import pickle
import sys

print("# file, then bytes: peak allocated, allocated before the first entry, at the end, reserved at most, events of memory")
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    device = max(range(len(snapshot["device_traces"])), key=lambda i: len(snapshot["device_traces"][i]))
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    live = sum(b["requested_size"] for s in segments for b in s["blocks"] if b["state"] != "inactive")
    end, peak, reserved, events = live, live, sum(s["total_size"] for s in segments if "allocated_size" in s), 0
    most = reserved
    for entry in reversed(snapshot["device_traces"][device]):
        action, size = entry["action"], entry["size"]
        live += {"alloc": -size, "free_completed": size}.get(action, 0)
        reserved += {"segment_alloc": -size, "segment_free": size}.get(action, 0)
        events += action in ("alloc", "free_completed")
        peak, most = max(peak, live), max(most, reserved)
    print(os.path.basename(path), peak, live, end, most or peak, events)
