#!/usr/bin/env python3
"""Damaged ONNX files, and sound ones with what is not supported: each is refused with exit code 2 and one line that says
where, and nothing is written. The files are written here byte by byte, from ONNX's schema.

Usage: onnx_damage.py SOURCE BIN, in an empty folder."""
import os
import struct
import subprocess
import sys

SOURCE, BIN = sys.argv[1:]


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A whole number, or bytes, a text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def floats(name, dims, count=None, kind=1, extra=b""):
    size = 1
    for dim in dims:
        size *= dim
    raw = struct.pack("<f", 0.5) * (size if count is None else count)
    return b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name) + field(9, raw) + extra


def ints(name, values):
    return field(1, len(values)) + field(2, 7) + field(8, name) + field(9, struct.pack(f"<{len(values)}q", *values))


def attribute(name, value):
    body = field(1, name)
    if isinstance(value, int):
        return body + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return body + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, str):
        return body + field(4, value) + field(20, 3)
    if isinstance(value, bytes):
        return body + field(5, value) + field(20, 4)
    return body + b"".join(field(8, one) for one in value) + field(20, 7)


def node(op, inputs, outputs=("y",), name="the.node", domain="", **attributes):
    return (b"".join(field(1, one) for one in inputs) + b"".join(field(2, one) for one in outputs) + field(3, name) +
            field(4, op) + b"".join(field(5, attribute(key, value)) for key, value in attributes.items()) +
            (field(7, domain) if domain else b""))


def value(name, dims, kind=1):
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def model(nodes, initializers=(), inputs=(("x", (2, 4)),), outputs=("y",), opset=17):
    graph = b"".join(field(1, one) for one in nodes) + field(2, "g")
    graph += b"".join(field(5, one) for one in initializers)
    graph += b"".join(field(11, value(*one)) for one in inputs) + b"".join(field(12, field(1, one)) for one in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, opset))


W, B = floats("w", (4, 3)), floats("b", (3,))
GOOD = model([node("Gemm", ("x", "w", "b"))], [W, B])
IMAGE = (("x", (2, 3, 8, 8)),)
FILTER = floats("w", (4, 3, 3, 3))


def one(op, inputs, initializers=(), **more):
    given = {key: more.pop(key) for key in ("outputs", "domain") if key in more}
    graph_inputs = more.pop("graph_inputs", (("x", (2, 4)),))
    return model([node(op, inputs, **given, **more)], initializers, graph_inputs)


def scalar(name, number):
    return field(2, 1) + field(8, name) + field(9, struct.pack("<f", number))


def lstm(width=3, biases=2, **attributes):
    """Of 3 inputs and 2 states; `width` is what its weight says."""
    shapes = {"w": (1, 8, width), "r": (1, 8, 2), "b": (1, 8 * biases)}
    return model([node("LSTM", ("x", "w", "r", "b"), hidden_size=2, **attributes)],
                 [floats(name, shape) for name, shape in shapes.items()], inputs=(("x", (5, 2, 3)),))


# Sound ones, which are read.
SOUND = {
    "good": GOOD,
    "an LSTM": lstm(),
    "a mean that is the output": one("ReduceMean", ("x",), axes=[-1], keepdims=1),
    "remainders of either sign": model([node("Mod", ("a", "b"), ("s",), fmod=1), node("Abs", ("s",), ("n",)), node("Reshape", ("x", "n"))],
                                       [ints("a", [-8]), ints("b", [9])]),
}

CASES = {
    "cut off": (GOOD[:-20], "is no ONNX model"),
    "cut to two bytes": (GOOD[:2], "is no ONNX model"),
    "without a graph": (field(1, 8) + field(8, field(2, 17)), "is no ONNX model"),
    "a length beyond the end": (field(1, 8) + b"\x3a\xff\xff\xff\x7f", "is no ONNX model"),
    "an old operator set": (model([node("Relu", ("x",))], opset=9), "operator set 9, wanted 13"),
    "an unknown operator": (one("Reluu", ("x",)), "node the.node (Reluu): no such operator is supported; near: Relu"),
    "Einsum": (one("Einsum", ("x", "x"), equation="ij,ij->i"), "(Einsum): no such operator"),
    "another domain": (one("Relu", ("x",), domain="com.microsoft"), "domain \"com.microsoft\""),
    "an input that nobody makes": (one("Relu", ("z",)), "input 0 is \"z\", which nothing before it makes"),
    "a missing input": (one("Gemm", ("x",), [W]), "input 1 is missing"),
    "an output made twice": (model([node("Relu", ("x",)), node("Relu", ("x",))]), "\"y\" is there twice"),
    "a node without outputs": (one("Relu", ("x",), outputs=()), "has no output"),
    "two outputs": (model([node("Relu", ("x",))], outputs=("y", "x")), "has 2 outputs, wanted one"),
    "an output that is not there": (model([node("Relu", ("x",))], outputs=("z",)), "wanted one that is computed"),
    "too few bytes": (model([node("Gemm", ("x", "w", "b"))], [floats("w", (4, 3), 11), B]), "\"w\" has 44 bytes, wanted 12"),
    "too many bytes": (model([node("Gemm", ("x", "w", "b"))], [floats("w", (4, 3), 13), B]), "\"w\" has 52 bytes"),
    "a negative dim": (model([node("Gemm", ("x", "w", "b"))], [floats("w", (4, 3), 1) + field(1, -5), B]), "dim 2 of -5"),
    "an endless dim": (model([node("Relu", ("x",))], [field(1, 1 << 62) + field(1, 1 << 62) + field(2, 1) + field(8, "w") +
                                                    field(9, b"")]), "\"w\" has dim"),
    "seven dims": (model([node("Relu", ("x",))], [floats("w", (1,) * 7)]), "7 dims, wanted at most 6"),
    "float16": (model([node("Relu", ("x",))], [floats("w", (4, 3), kind=10)]), "type 10"),
    "data in another file": (model([node("Relu", ("x",))], [floats("w", (4, 3), extra=field(13, field(1, "location")))]),
                             "keeps its data in another file"),
    "a weight of another size": (one("Gemm", ("x", "w"), [floats("w", (5, 3))]), "multiplies [2, 4] by \"w\" [5, 3]"),
    "a bias of another size": (one("Gemm", ("x", "w", "b"), [W, floats("b", (4,))]), "\"b\" has shape [4], wanted"),
    "alpha": (one("Gemm", ("x", "w"), [W], alpha=2.0), "alpha or beta"),
    "a weight that is computed": (one("Gemm", ("x", "x"), ()), "wanted an initializer"),
    "an input of doubles": (model([node("Relu", ("x",))], inputs=(("x", (2, 4), 11),)), "input \"x\" has type 11"),
    "an input of no size": (model([node("Relu", ("x",))], inputs=(("x", (2, 0)),)), "dim 1 of 0"),
    "an input without a shape": (field(1, 8) + field(7, field(1, node("Relu", ("x",))) + field(11, field(1, "x") + field(
        2, field(1, field(1, 1)))) + field(12, field(1, "y"))) + field(8, field(2, 17)), "has no shape"),
    "another auto_pad": (one("Conv", ("x", "w"), [FILTER], graph_inputs=IMAGE, auto_pad="SAME_UPPER"), "\"auto_pad\""),
    "a filter larger than the image": (one("Conv", ("x", "w"), [floats("w", (4, 3, 9, 9))], graph_inputs=IMAGE), "(Conv)"),
    "a stride of 0": (one("Conv", ("x", "w"), [FILTER], graph_inputs=IMAGE, strides=[0, 0]), "stride"),
    "three strides": (one("Conv", ("x", "w"), [FILTER], graph_inputs=IMAGE, strides=[1, 1, 1]), "has 3 numbers, wanted 2"),
    "groups that divide nothing": (one("Conv", ("x", "w"), [FILTER], graph_inputs=IMAGE, group=2), "(Conv)"),
    "pads that do not count": (one("AveragePool", ("x",), graph_inputs=IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                               "pads that do not count"),
    "a clip to -1": (one("Clip", ("x", "low"), [field(2, 1) + field(8, "low") + field(9, struct.pack("<f", -1))]), "clips to -1"),
    "a shape that does not fit": (one("Reshape", ("x", "s"), [ints("s", [3, 3])]), "[2, 4] does not fit the new shape [3, 3]"),
    "an axis too far": (one("Softmax", ("x",), axis=7), "axis 7 of 2 dims"),
    "a perm with a dim twice": (one("Transpose", ("x",), perm=[0, 0]), "\"perm\" is no order"),
    "an empty slice": (one("Slice", ("x", "a", "b"), [ints("a", [3]), ints("b", [1])]), "cuts"),
    "a constant as large as memory": (one("ConstantOfShape", ("s",), [ints("s", [1 << 40])]), "more than 1048576 elements"),
    "a constant shape without a shape": (one("ConstantOfShape", ("",)), "no shape"),
    "a fill of two numbers": (model([node("ConstantOfShape", ("s",), value=floats("v", (2,)))], [ints("s", [2])]), "2 numbers, wanted one"),
    "the least of three constants": (one("Min", ("a", "b", "c"), [ints("a", [4]), ints("b", [2]), ints("c", [1])]),
                                     "3 constants as inputs, wanted 2"),
    "an axis that is no list": (one("ReduceMean", ("x",), axes=1), "\"axes\" has 0 whole numbers, wanted a list"),
    "a slope that is a whole number": (one("LeakyRelu", ("x",), alpha=2), "\"negative_slope\" becomes nan"),
    "an output shape of ConvTranspose": (one("ConvTranspose", ("x", "w"), [floats("w", (3, 4, 3, 3))], graph_inputs=IMAGE,
                                             output_shape=[9, 9]), "\"output_shape\" is not supported"),
    "an average over what ceil_mode adds": (one("AveragePool", ("x",), graph_inputs=(("x", (2, 3, 7, 7)),), kernel_shape=[3, 3],
                                                strides=[2, 2], pads=[1, 1, 0, 0], ceil_mode=1, count_include_pad=1),
                                            "pads that do not count"),
    "gates that are coupled": (lstm(input_forget=1), "input_forget is not supported"),
    "an LSTM of wider inputs": (lstm(width=4), "weights of other sizes"),
    "an LSTM with a third bias": (lstm(biases=3), "weights of other sizes"),
    "erf of a number over x": (model([node("Div", ("root", "x"), ("u",)), node("Erf", ("u",), ("v",)), node("Add", ("v", "one"), ("a",)),
                                      node("Mul", ("a", "x"), ("b",)), node("Mul", ("b", "half"))],
                                     [scalar("root", 2 ** 0.5), scalar("one", 1), scalar("half", 0.5)]), "(Erf): is supported in"),
    "a free size without an end": (model([node("Relu", ("x",))], inputs=(("x", ("n", 1 << 62)),)), "model.onnx"),
}


def refuse(command, what, wanted):
    before = set(os.listdir("."))
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    lines = done.stderr.splitlines()
    if done.returncode != 2 or len(lines) != 1 or wanted not in lines[0] or set(os.listdir(".")) != before:
        sys.exit(f"onnx_damage: {what}: exit {done.returncode}, wanted 2 and \"{wanted}\": {done.stderr[:400]}")


def main():
    for what, bytes_ in reversed(SOUND.items()):
        with open("good.onnx", "wb") as file:
            file.write(bytes_)
        subprocess.run([f"{BIN}/ckpt-plan", "--threads", "2", "--strategy", "keep-all", "-o", "good.json", "good.onnx"], check=True,
                       stdout=subprocess.DEVNULL)
    for what, (bytes_, wanted) in CASES.items():
        with open("model.onnx", "wb") as file:
            file.write(bytes_)
        refuse([f"{BIN}/ckpt-plan", "--threads", "2", "-o", "plan.json", "model.onnx"], what, wanted)
        refuse([f"{BIN}/ckpt-train", "--plan", "good.json", "--threads", "2", "--steps", "1", "--export", "out.safetensors",
                "--init", "model.onnx", "good.onnx"], what + ", as weights", "model.onnx")
    print(f"{len(CASES)} damaged files, each refused twice")


main()
