#!/usr/bin/env python3
"""Damaged weight files and configurations: each is refused with exit code 2 and one line, and nothing is written.

Usage: weights_damage.py SOURCE BIN, in a folder with plan.json of tests/families/gpt2 as network.json."""
import json
import os
import shutil
import struct
import subprocess
import sys

SOURCE, BIN = sys.argv[1:]
FIXTURE = os.path.join(SOURCE, "tests/families/gpt2")
with open(os.path.join(FIXTURE, "model.safetensors"), "rb") as file:
    WHOLE = file.read()
LENGTH = struct.unpack("<Q", WHOLE[:8])[0]
HEADER, DATA = json.loads(WHOLE[8:8 + LENGTH]), WHOLE[8 + LENGTH:]
CONFIG = json.load(open(os.path.join(FIXTURE, "config.json"), encoding="utf-8"))
NAMES = sorted((name for name in HEADER if name != "__metadata__"), key=lambda name: HEADER[name]["data_offsets"])
A, B, LAST = NAMES[0], NAMES[1], NAMES[-1]


def pack(header, data=DATA, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def changed(name, **members):
    """The header with members of one tensor replaced; None: taken away."""
    header = json.loads(json.dumps(HEADER))
    for key, value in members.items():
        if value is None:
            del header[name][key]
        else:
            header[name][key] = value
    return header


def without(name):
    """The file without that tensor."""
    first, behind = HEADER[name]["data_offsets"]
    header = json.loads(json.dumps(HEADER))
    del header[name]
    for one in header.values():
        if "data_offsets" in one and one["data_offsets"][0] >= behind:
            one["data_offsets"] = [at - (behind - first) for at in one["data_offsets"]]
    return pack(header, DATA[:first] + DATA[behind:])


def renamed(name, other):
    return pack({other if key == name else key: value for key, value in HEADER.items()})


def added(name, dtype, shape, data):
    return pack({**HEADER, name: {"dtype": dtype, "shape": shape, "data_offsets": [len(DATA), len(DATA) + len(data)]}}, DATA + data)


def text(**insert):
    return json.dumps(HEADER).encode().replace(b"{", b"{" + insert["at_start"], 1)


first, behind = HEADER[A]["data_offsets"]
shape = HEADER[A]["shape"]
WEIGHTS = {
    "empty": b"", "seven-bytes": WHOLE[:7], "no-header": struct.pack("<Q", 0), "length-alone": WHOLE[:8],
    "no-tensors": pack({}, b""), "zeros": bytes(64), "a-text": b"{}" * 40, "pickle": b"\x80\x02}q\x00." * 30,
    "header-past-end": pack(HEADER, length=len(WHOLE)), "header-one-too-long": pack(HEADER, b"", len(json.dumps(HEADER)) + 1),
    "header-101-MB": pack(HEADER, length=101_000_000), "header-2^63": pack(HEADER, length=2**63), "header-2^64-1": pack(HEADER, length=2**64 - 1),
    "header-too-short": pack(HEADER, length=len(json.dumps(HEADER)) - 1), "array": pack(b"[]"), "number": pack(b"1"),
    "blank-first": pack(b" " + json.dumps(HEADER).encode()), "garbage-behind": pack(json.dumps(HEADER).encode() + b"x"),
    "nul-behind": pack(json.dumps(HEADER).encode() + b"\0"), "not-utf8": pack(text(at_start=b'"\xff": 1, ')),
    "nul-name": pack(text(at_start=b'"a\\u0000": 1, ')), "trailing-comma": pack(json.dumps(HEADER).encode()[:-1] + b",}"),
    "name-twice": pack(text(at_start=b'"%s": %s, ' % (A.encode(), json.dumps(HEADER[A]).encode()))),
    "dtype-twice": pack(json.dumps(HEADER).encode().replace(b'"dtype": "F32"', b'"dtype": "F32", "dtype": "F32"', 1)),
    "deep": pack(text(at_start=b'"a": ' + b"[" * 3000 + b"]" * 3000 + b", ")),
    "metadata-number": pack({**HEADER, "__metadata__": 1}), "metadata-of-numbers": pack({**HEADER, "__metadata__": {"a": 1}}),
    "metadata-nested": pack({**HEADER, "__metadata__": {"a": {}}}), "tensor-null": pack({**HEADER, A: None}),
    "tensor-array": pack({**HEADER, A: []}), "tensor-text": pack({**HEADER, A: "F32"}),
    "no-dtype": pack(changed(A, dtype=None)), "no-shape": pack(changed(A, shape=None)), "no-offsets": pack(changed(A, data_offsets=None)),
    "dtype-unknown": pack(changed(A, dtype="F31")), "dtype-lower": pack(changed(A, dtype="f32")), "dtype-number": pack(changed(A, dtype=32)),
    "dtype-narrower": pack(changed(A, dtype="F16")), "dtype-wider": pack(changed(A, dtype="F64")), "dtype-whole": pack(changed(A, dtype="I32")),
    "shape-text": pack(changed(A, shape="[1]")), "shape-of-texts": pack(changed(A, shape=["1"])), "shape-negative": pack(changed(A, shape=[-1])),
    "shape-fraction": pack(changed(A, shape=[1.5])), "shape-exponent": pack(json.dumps(changed(A, shape=[77])).encode().replace(b"77", b"7e1")),
    "shape-smaller": pack(changed(A, shape=[shape[0] - 1, *shape[1:]])), "shape-larger": pack(changed(A, shape=[shape[0] + 1, *shape[1:]])),
    "shape-overflow": pack(changed(A, shape=[2**32, 2**32])), "shape-2^63": pack(changed(A, shape=[2**63])),
    "shape-2^40-zero": pack(changed(A, shape=[2**40, 2**40, 0])), "shape-of-99": pack(changed(A, shape=[1] * 99)),
    "shape-split": pack(changed(A, shape=[*shape, 1])), "offsets-one": pack(changed(A, data_offsets=[first])),
    "offsets-three": pack(changed(A, data_offsets=[first, behind, behind])), "offsets-reversed": pack(changed(A, data_offsets=[behind, first])),
    "offsets-negative": pack(changed(A, data_offsets=[-4, behind - first - 4])), "offsets-text": pack(changed(A, data_offsets=["0", "4"])),
    "offsets-beyond": pack(changed(LAST, data_offsets=[at + 4 for at in HEADER[LAST]["data_offsets"]])),
    "offsets-2^63": pack(changed(A, data_offsets=[0, 2**63])), "overlap": pack({**HEADER, B: HEADER[A]}),
    "swapped-shapes": pack({**HEADER, A: HEADER[LAST], LAST: HEADER[A]}),
    "gap": pack(changed(A, data_offsets=[first + 4, behind + 4]), DATA + bytes(4)),
    "hole-before": pack({k: v if "data_offsets" not in v else {**v, "data_offsets": [at + 8 for at in v["data_offsets"]]} for k, v in HEADER.items()}, bytes(8) + DATA),
    "data-short": WHOLE[:-1], "data-long": WHOLE + b"\0", "data-none": WHOLE[:8 + LENGTH], "data-half": WHOLE[:8 + LENGTH + len(DATA) // 2],
    "missing-first": without(A), "missing-last": without(LAST), "missing-bias": without("transformer.ln_f.bias"),
    "missing-layer": without("transformer.h.1.mlp.c_fc.weight"), "renamed": renamed("transformer.wte.weight", "transformer.wtf.weight"),
    "prefix-twice": renamed("transformer.wte.weight", "transformer.transformer.wte.weight"),
    "layer-of-three": renamed("transformer.h.1.ln_1.weight", "transformer.h.2.ln_1.weight"),
    "unexpected": added("score.weight", "F32", [1], bytes(4)), "unexpected-empty": added("score.weight", "F32", [0], b""),
    "tied-otherwise": added("lm_head.weight", "F32", HEADER["transformer.wte.weight"]["shape"], bytes(4 * 29 * 12)),
    "tied-other-shape": added("lm_head.weight", "F32", [29], bytes(4 * 29)),
    "transposed": pack(changed("transformer.h.0.attn.c_attn.weight", shape=[36, 12])),
    **{f"cut-{i}": WHOLE[:len(WHOLE) * i // 17] for i in range(1, 17)},
}
index = {name: "one.safetensors" for name in NAMES}
INDEXES = {
    "no-map": {}, "map-array": {"weight_map": []}, "map-null": {"weight_map": None}, "map-empty": {"weight_map": {}}, "map-of-numbers": {"weight_map": {A: 1}},
    "outside": {"weight_map": {**index, A: "../one.safetensors"}}, "absolute": {"weight_map": {**index, A: "/etc/passwd"}},
    "no-name": {"weight_map": {**index, A: ""}}, "no-shard": {"weight_map": {**index, A: "two.safetensors"}},
    "not-in-shard": {"weight_map": {**index, "other": "one.safetensors"}}, "not-named": {"weight_map": {k: v for k, v in index.items() if k != A}},
    "in-both": {"weight_map": {**index, A: "copy.safetensors"}}, "itself": {"weight_map": {**index, A: "index.json"}},
}
CONFIGS = {
    "type-unknown": {"model_type": "gpt9"}, "type-number": {"model_type": 2}, "type-null": {"model_type": None}, "type-empty": {"model_type": ""},
    "activation-unknown": {"activation_function": "mish"}, "activation-number": {"activation_function": 1}, "activation-list": {"activation_function": ["gelu", "relu"]},
    "width-text": {"n_embd": "12"}, "width-zero": {"n_embd": 0}, "width-negative": {"n_embd": -12}, "width-fraction": {"n_embd": 12.5},
    "width-list": {"n_embd": [12]}, "width-object": {"n_embd": {}}, "width-huge": {"n_embd": 2**62}, "width-2^64": {"n_embd": 2**64},
    "heads": {"n_head": 5}, "heads-zero": {"n_head": 0}, "layers-negative": {"n_layer": -1}, "layers-many": {"n_layer": 10**7},
    "rows-few": {"n_positions": 5}, "vocabulary-zero": {"vocab_size": 0}, "vocabulary-wide": {"vocab_size": 2**40}, "inner-negative": {"n_inner": -1},
    "drop-two": {"resid_pdrop": 2}, "drop-one": {"embd_pdrop": 1.0}, "drop-text": {"attn_pdrop": "0.1"}, "epsilon-text": {"layer_norm_epsilon": "1e-5"},
    "epsilon-negative": {"layer_norm_epsilon": -1e-5}, "unscaled": {"scale_attn_weights": False}, "by-layer": {"scale_attn_by_inverse_layer_idx": True},
    "crossed": {"add_cross_attention": True}, "tied-text": {"tie_word_embeddings": "yes"}, "quantized": {"quantization_config": {"bits": 4}},
    "format": {"format": "ckpt-config/1"},
}
LLAMA = json.load(open(os.path.join(SOURCE, "tests/families/llama/config.json"), encoding="utf-8"))
LLAMAS = {
    "rope-unknown": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}}, "rope-old-unknown": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "rope-type-number": {"rope_parameters": {"rope_type": 1}}, "rope-theta-text": {"rope_parameters": {"rope_theta": "1e4"}},
    "rope-theta-zero": {"rope_theta": 0, "rope_parameters": None}, "rope-factor-negative": {"rope_scaling": {"type": "linear", "factor": -1.0}}, "rope-partial": {"partial_rotary_factor": 0.5},
    "kv-heads": {"num_key_value_heads": 3}, "kv-heads-zero": {"num_key_value_heads": -2}, "head-odd": {"head_dim": 3},
    "bias-text": {"attention_bias": "yes"}, "bias-list": {"mlp_bias": []}, "act": {"hidden_act": "relu"}, "epsilon": {"rms_norm_eps": -1.0},
    "layers-differ": {"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]}, "layers-unknown": {"model_type": "qwen3", "layer_types": ["chunked_attention"]},
    "layers-empty": {"model_type": "qwen2", "layer_types": []}, "layers-object": {"model_type": "qwen2", "layer_types": {"0": "full_attention"}},
    "layers-nested": {"model_type": "qwen2", "layer_types": ["full_attention", ["full_attention", "full_attention"]]},
    "experts-act": {"model_type": "mixtral", "hidden_act": "gelu"},
    "window-negative": {"model_type": "mistral", "sliding_window": "3"},
}
TEXTS = {"empty": "", "cut": json.dumps(CONFIG)[:200], "twice": '{"model_type": "gpt2", "model_type": "gpt2"}', "array": "[]", "no-type": "{}", "comment": "{ // a\n}"}


def refused(what, command):
    for path in ("out.safetensors", "out.json"):
        if os.path.exists(path):
            os.remove(path)
    before = set(os.listdir("."))
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    lines = run.stderr.splitlines()
    if run.returncode != 2 or len(lines) != 1 or not lines[0].startswith("ckpt-") or set(os.listdir(".")) != before:
        sys.exit(f"{what}: exit {run.returncode}, {run.stderr!r}, new files {set(os.listdir('.')) - before}")
    return lines[0]


def main():
    count = 0
    init = [f"{BIN}/ckpt-train", "--set", "batch=2", "--set", "tokens=6", "--threads", "2", "--plan", "plan.json", "--steps", "1",
            "--export", "out.safetensors", "--init"]
    for name, data in WEIGHTS.items():
        with open("bad.safetensors", "wb") as file:
            file.write(data)
        print(name, refused(name, [*init, "bad.safetensors", "network.json"]), sep=": ")
        count += 1
    shutil.copy(os.path.join(FIXTURE, "model.safetensors"), "one.safetensors")
    shutil.copy(os.path.join(FIXTURE, "model.safetensors"), "copy.safetensors")
    for name, value in INDEXES.items():
        with open("index.json", "w", encoding="utf-8") as file:
            json.dump(value, file)
        print(name, refused(name, [*init, "index.json", "network.json"]), sep=": ")
        count += 1
    configs = {name: json.dumps({**CONFIG, **change}) for name, change in CONFIGS.items()}
    configs |= {name: json.dumps({**LLAMA, **change}) for name, change in LLAMAS.items()}
    for name, value in {**configs, **TEXTS}.items():
        with open("bad.json", "w", encoding="utf-8") as file:
            file.write(value)
        line = refused(name, [f"{BIN}/ckpt-plan", "--set", "batch=2", "--set", "tokens=6", "-o", "out.json", "bad.json"])
        if "bad.json" not in line:
            sys.exit(f"{name}: {line} names no file")
        print(name, line, sep=": ")
        count += 1
    # An index that is right, with prefixes left out as the base model has them, half precision, and the tied copy.
    names = {name.removeprefix("transformer."): value for name, value in HEADER.items()}
    with open("one.safetensors", "wb") as file:
        file.write(pack(names))
    wte = HEADER["transformer.wte.weight"]
    with open("two.safetensors", "wb") as file:
        data = DATA[slice(*wte["data_offsets"])]
        file.write(pack({"lm_head.weight": {**wte, "data_offsets": [0, len(data)]}, "h.0.attn.bias": {"dtype": "U8", "shape": [2], "data_offsets": [len(data), len(data) + 2]}}, data + b"\1\1"))
    with open("index.json", "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": {**{name: "one.safetensors" for name in names if name != "__metadata__"},
                                                                "lm_head.weight": "two.safetensors", "h.0.attn.bias": "two.safetensors"}}, file)
    init[init.index("--steps") + 1] = "0"
    subprocess.run([*init, "index.json", "network.json"], check=True, stdout=subprocess.DEVNULL)
    with open("same.safetensors", "rb") as same, open("out.safetensors", "rb") as out:
        assert same.read() == out.read(), "weights of several files"
    assert count >= 100, count
    print(f"{count} files refused")


if __name__ == "__main__":
    main()
