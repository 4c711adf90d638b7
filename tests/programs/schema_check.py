#!/usr/bin/python3
"""Validates files against schema/, and that broken files are refused by it.

usage: schema_check.py SOURCE_DIR [FILE...]
       schema_check.py SOURCE_DIR --examples FOLDER     (write the examples of docs/reference/formats.md there)

Without files: every models/*.json, every recorded traces/**/*.json of a known format and the good files of
tests/malformed must be valid; the malformed ones listed in BROKEN must not be. With files: those must be valid.
"""
import json
import pathlib
import re
import sys

import jsonschema

# Files whose fault a schema can see. Others break rules between values (unknown names, sums, orders).
BROKEN = """
model/format-number model/name-number model/no-layers model/empty-layers model/layer-no-name model/layer-no-op
model/attribute-null model/attribute-object model/attribute-list model/in-text model/in-number model/repeat-and-op
model/repeat-empty model/repeat-no-layers model/checkpoint-text model/offload-number model/optimizer-text
model/optimizer-no-name model/vars-array model/var-null model/var-bad-name model/dtype-unknown model/input-dtype model/input-bfloat16
model/input-rank model/input-bad-name model/input-no-shape model/layer-bad-name model/expression-empty
profile/other-major profile/no-model profile/machine-text profile/link-zero profile/link-half profile/row-no-forward
profile/median-missing profile/median-negative profile/median-real profile/bytes-text profile/threads-huge
profile/target-unknown profile/kernel-direction profile/kernel-count profile/kernel-no-name profile/kernels-object
profile/roofline-negative profile/launches-huge profile/flushed-number profile/link-busy-zero plan/target-unknown plan/target-threads plan/reserve-negative
plan/no-graph plan/sha-short plan/sha-word plan/budget-negative plan/budget-text plan/verdict-unknown
plan/verdict-no-least plan/no-summary plan/summary-half plan/decision-unknown plan/no-steps plan/step-text
plan/step-nothing plan/step-two-verbs plan/free-again plan/fetch-inplace plan/no-places plan/place-negative
graph/no-name graph/no-buffers graph/buffer-kind graph/buffer-negative graph/buffer-no-name graph/buffer-workspace
graph/op-text graph/op-phase graph/op-no-time graph/reads-text graph/reads-twice graph/inplace-three graph/link-zero
graph/outputs-twice graph/checkpoint-number
trace/other-format trace/no-measured trace/measured-text trace/no-events trace/phase-unknown trace/no-bytes
trace/bytes-negative trace/step-negative trace/recorder-number trace/launches-huge trace/kernel-time-real trace/size-negative
trace/address-text trace/other-negative profile/kernel-time-text profile/gap-negative profile/cache-misses-real
profile/recorder-null
plan/outline-no-ops plan/outline-no-static plan/outline-no-buffers plan/outline-kind plan/outline-phase
plan/outline-op-text plan/outline-op-no-time plan/outline-no-name plan/outline-workspace plan/options-text plan/options-number
trace/place-category trace/place-no-category trace/place-no-what trace/place-step-huge trace/place-negative
trace/places-object trace/capacity-negative trace/step-times-text trace/step-times-negative
profile/samples-text profile/samples-real profile/samples-negative
sweep/no-points sweep/no-keep-all sweep/point-no-time sweep/budget-text sweep/sha-short sweep/bound-no-time
sweep/complete-number sweep/baseline-no-name sweep/baselines-object
""".split()

KINDS = ["model", "profile", "graph", "plan", "trace", "sweep"]


def load_validators(source):
    validators = {}
    for kind in KINDS:
        schema = json.loads((source / "schema" / f"ckpt-{kind}-1.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validators[f"ckpt-{kind}/1"] = jsonschema.Draft202012Validator(schema)
    return validators


def first_fault(validators, path, wanted=None):
    """The first fault of a file as a line, or None. `wanted`: the format it must be of."""
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        return f"{path}: {error}"
    kind = wanted or (value.get("format") if isinstance(value, dict) else None)
    if kind not in validators:
        return f"{path}: of no known format: {kind}"
    fault = jsonschema.exceptions.best_match(validators[kind].iter_errors(value))
    if fault is None:
        return None
    return f"{path}: at {fault.json_path}: {fault.message[:300]}"


def write_examples(source, folder):
    """Each kind's example in the documentation, as example-<kind>.json."""
    blocks = re.findall(r"```json\n(.*?)```", (source / "docs" / "reference" / "formats.md").read_text(), re.S)
    kinds = [json.loads(block)["format"].split("-")[1].split("/")[0] for block in blocks]
    if sorted(kinds) != sorted(KINDS):
        print(f"docs/reference/formats.md has examples of {kinds}", file=sys.stderr)
        return 1
    for kind, block in zip(kinds, blocks):
        (folder / f"example-{kind}.json").write_text(block)
    return 0


def main():
    source = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["--examples"]:
        return write_examples(source, pathlib.Path(sys.argv[3]))
    validators = load_validators(source)
    files = [pathlib.Path(name) for name in sys.argv[2:]]
    malformed = source / "tests" / "malformed"
    if not files:
        models = sorted((source / "models").glob("*.json"))
        if not models:
            print("no models/*.json", file=sys.stderr)
            return 1
        traces = sorted((source / "traces").rglob("*.json"))
        known = [path for path in traces if '"format"' in path.read_text()[:200]]
        files = models + known + sorted((malformed / "good").glob("*.json"))
    faults = [fault for path in files if (fault := first_fault(validators, path))]
    refused = 0
    if len(sys.argv) == 2:
        for name in BROKEN:
            if first_fault(validators, malformed / f"{name}.json", f"ckpt-{name.split('/')[0]}/1") is None:
                faults.append(f"{name}: the schema accepts it, but it is broken")
            refused += 1
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(files)} files valid, {refused} broken ones refused" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
