#!/usr/bin/env python3
"""Plans a small step built in memory, in Python: ctypes and libckpt.so.0, nothing else."""
import ctypes
import json
import sys

ckpt = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libckpt.so.0")


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("line", ctypes.c_int32), ("column", ctypes.c_int32),
                ("message", ctypes.c_char * 516)]


def call(function, *arguments, result=ctypes.c_int):
    """Calls ckpt_<function> with an error behind its arguments; raises what went wrong."""
    error = Error()
    function = getattr(ckpt, "ckpt_" + function)
    function.restype = result
    value = function(*arguments, ctypes.byref(error))
    if error.code:
        raise ValueError(error.message.decode())
    return value


for name in "graph_create", "options_create":
    getattr(ckpt, "ckpt_" + name).restype = ctypes.c_void_p
graph = ctypes.c_void_p(ckpt.ckpt_graph_create(b"example"))
options = ctypes.c_void_p(ckpt.ckpt_options_create())
plan = ctypes.c_void_p()
size, forward, backward = ctypes.c_int64(1_000_000), ctypes.c_int64(100_000), ctypes.c_int64(200_000)
ckpt.ckpt_graph_add_static(graph, b"weights", ctypes.c_int64(2_000_000))
activation, gradient = [], None
for i in range(6):
    op = ckpt.ckpt_graph_add_op(graph, b"layer%d" % i, 0, forward, ctypes.c_int64(0))
    activation.append(ckpt.ckpt_graph_add_buffer(graph, b"layer%d" % i, size, 0))
    ckpt.ckpt_op_writes(graph, op, activation[i])
    if i > 0:
        ckpt.ckpt_op_reads(graph, op, activation[i - 1])
for i in reversed(range(6)):
    op = ckpt.ckpt_graph_add_op(graph, b"layer%d/grad" % i, 1, backward, ctypes.c_int64(0))
    for buffer in [activation[i]] + ([gradient] if gradient is not None else []):
        ckpt.ckpt_op_reads(graph, op, buffer)
    gradient = ckpt.ckpt_graph_add_buffer(graph, b"layer%d/grad" % i, size, 2)
    ckpt.ckpt_op_writes(graph, op, gradient)
call("graph_finish", graph)
call("options_set", options, b"budget", b"75%")
call("plan_create", graph, options, ctypes.byref(plan))
text = call("plan_json", plan, None, result=ctypes.c_void_p)
summary = json.loads(ctypes.string_at(text))["summary"]
print("peak %d of %d bytes, time +%.1f %%" % (summary["peak_bytes"], summary["keep_all"]["peak_bytes"],
                                              100 * summary["recompute_ns"] / summary["keep_all"]["time_ns"]))
ckpt.ckpt_json_free(ctypes.c_void_p(text))
for kind, handle in ("plan", plan), ("options", options), ("graph", graph):
    getattr(ckpt, f"ckpt_{kind}_destroy")(handle)
