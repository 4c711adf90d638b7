"""ctypes over ckpt.h: a graph as JSON and options in, a plan out. Nothing is decided here."""

import ctypes
import importlib.metadata
import json
import os
import shutil
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path


class Error(Structure):
    _fields_ = [("code", c_int32), ("line", c_int32), ("column", c_int32), ("message", c_char * 516)]


class Summary(Structure):
    _fields_ = [
        ("verdict", c_int32), ("ended_early", c_int32), ("budget_bytes", c_int64), ("min_budget_bytes", c_int64),
        ("no_schedule_below_bytes", c_int64), ("peak_bytes", c_int64), ("static_bytes", c_int64),
        ("arena_bytes", c_int64), ("time_ns", c_int64), ("recompute_ns", c_int64), ("offload_bytes", c_int64),
        ("host_bytes", c_int64), ("keep_all_peak_bytes", c_int64), ("keep_all_time_ns", c_int64), ("bound_ns", c_int64),
        ("planning_seconds", c_double), ("bound_how", c_char_p), ("bound_scope", c_char_p), ("strategy", c_char_p),
        ("graph_name", c_char_p), ("graph_sha256", c_char_p), ("costs", c_char_p), ("notes", c_char_p)]


class Step(Structure):
    _fields_ = [("action", c_int32), ("index", c_int32), ("recomputed", c_int32), ("inplace", c_int32),
                ("name", c_char_p), ("variant", c_char_p)]


class OptionInfo(Structure):
    _fields_ = [("name", c_char_p), ("argument", c_char_p), ("help", c_char_p)]


RUN, FREE, OFFLOAD, FETCH = range(4)  # Step.action
FITS = 0  # Summary.verdict


def path():
    """Of libckpt."""
    installed = Path(__file__).parent / "_ckpt" / "lib" / "libckpt.so.0"
    return os.environ.get("CKPT_LIBRARY") or str(installed if installed.exists() else installed.name)


def program(name):
    """The path of a program that pip installed with this package, or else that PATH has; FileNotFoundError."""
    try:
        found = [file.locate() for file in importlib.metadata.files("ckpt-torch") or () if file.name == name]
    except importlib.metadata.PackageNotFoundError:
        found = []
    path = found[0] if found else shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is neither installed with ckpt-torch nor in PATH")
    return str(path)


library = ctypes.CDLL(path())
_ERROR, _OUT = POINTER(Error), POINTER(c_void_p)


def declare(name, result, *arguments):
    """Types of a function of ckpt.h, without its prefix."""
    function = getattr(library, "ckpt_" + name)
    function.restype, function.argtypes = result, arguments


for _name, _result, *_arguments in [
        ("version", c_char_p),
        ("options_create", c_void_p),
        ("options_destroy", None, c_void_p),
        ("options_set", c_int, c_void_p, c_char_p, c_char_p, _ERROR),
        ("options_list", POINTER(OptionInfo), POINTER(c_int32)),
        ("graph_from_json", c_int, c_char_p, c_char_p, c_size_t, c_void_p, _OUT, _ERROR),
        ("graph_destroy", None, c_void_p),
        ("graph_json", c_void_p, c_void_p, POINTER(c_size_t), _ERROR),
        ("plan_create", c_int, c_void_p, c_void_p, _OUT, _ERROR),
        ("plan_destroy", None, c_void_p),
        ("plan_summarize", None, c_void_p, POINTER(Summary)),
        ("plan_steps", POINTER(Step), c_void_p, POINTER(c_int32)),
        ("plan_json", c_void_p, c_void_p, POINTER(c_size_t), _ERROR),
        ("trace_create", c_int, c_void_p, c_void_p, _OUT, _ERROR),
        ("trace_destroy", None, c_void_p),
        ("trace_json", c_void_p, c_void_p, POINTER(c_size_t), _ERROR),
        ("json_free", None, c_void_p)]:
    declare(_name, _result, *_arguments)


def call(function, *arguments):
    """A function of ckpt.h that ends with a ckpt_error *; raises what that says."""
    error = Error()
    result = getattr(library, "ckpt_" + function)(*arguments, byref(error))
    if error.code:
        raise ValueError(error.message.decode())
    return result


def _text(function, handle):
    text = call(function, handle, None)
    try:
        return ctypes.string_at(text).decode()
    finally:
        library.ckpt_json_free(text)


def version():
    return library.ckpt_version().decode()


def option_names():
    """The options that ckpt_options_set takes."""
    count = c_int32()
    options = library.ckpt_options_list(byref(count))
    return {options[i].name.decode() for i in range(count.value)}


class Plan:
    """A plan of a graph.

    warning   None, or what its user should know
    summary   the fields of ckpt_plan_summary
    steps     [(action, index of the op or buffer, whether the op was recomputed, whether it runs in place)]
    """

    def __init__(self, name, graph, options):
        """Plans.

        name      of the graph, for messages
        graph     a dict of ckpt-graph/1
        options   {name: text} as on ckpt-plan's command line
        Raises ValueError for an option or a graph that libckpt does not take.
        """
        self._graph, self._plan, self.warning = c_void_p(), c_void_p(), None
        chosen = library.ckpt_options_create()
        try:
            for key, value in options.items():
                call("options_set", chosen, key.encode(), str(value).encode())
            text = json.dumps(graph).encode()
            call("graph_from_json", name.encode(), text, len(text), chosen, byref(self._graph))
            call("plan_create", self._graph, chosen, byref(self._plan))
        finally:
            library.ckpt_options_destroy(chosen)
        summary = Summary()
        library.ckpt_plan_summarize(self._plan, byref(summary))
        self.summary = {field: getattr(summary, field) for field, _ in Summary._fields_}
        for field, value in self.summary.items():
            if isinstance(value, bytes):
                self.summary[field] = value.decode()
        count = c_int32()
        steps = library.ckpt_plan_steps(self._plan, byref(count))
        self.steps = [(steps[i].action, steps[i].index, bool(steps[i].recomputed), bool(steps[i].inplace))
                      for i in range(count.value)]

    @property
    def fits(self):
        return self.summary["verdict"] == FITS

    def graph_json(self):
        return _text("graph_json", self._graph)

    def plan_json(self):
        return _text("plan_json", self._plan)

    def trace_json(self):
        """The predicted trace."""
        trace = c_void_p()
        call("trace_create", self._plan, self._graph, byref(trace))
        try:
            return _text("trace_json", trace)
        finally:
            library.ckpt_trace_destroy(trace)

    def kept(self):
        return KeptPlan(self.warning, self.summary, self.steps, self.graph_json(), self.plan_json(), self.trace_json())

    def __del__(self):
        library.ckpt_plan_destroy(self._plan)
        library.ckpt_graph_destroy(self._graph)


class KeptPlan:
    """What a Plan says, without libckpt's memory."""

    def __init__(self, warning, summary, steps, *texts):
        self.warning, self.summary, self.steps, self._texts = warning, summary, steps, texts

    def graph_json(self):
        return self._texts[0]

    def plan_json(self):
        return self._texts[1]

    def trace_json(self):
        return self._texts[2]
