#!/usr/bin/env bash
# ckpt-train as people train: validations on other data, the best state, an early stop, logs, generated text, files of data.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
model=fast.json
small=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --threads 1)
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1
# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

sed 's/"lr": *[0-9.e-]*/"lr": 0.006/' "$source_dir/models/byte-gpt.json" > fast.json
grep -q '"lr": 0.006' fast.json || fail "the model has no learning rate"

# A text that a small network learns at once, and one that it gets wrong the better it knows the first.
for _ in $(seq 300); do printf 'abcdefgh'; done > text.txt
for _ in $(seq 200); do printf 'hgfedcba'; done > other.txt
"$plan" "${small[@]}" --budget 75% -o plan.json "$model" > /dev/null || fail "plan"
"$plan" "${small[@]}" --strategy keep-all -o all.json "$model" > /dev/null || fail "plan keep-all"
run=("$train" "${small[@]}" --data text:text.txt "$model")

# Validations change nothing of the training, and are the same under any plan, with any workers, stopped or not.
"${run[@]}" --plan plan.json --steps 100 --log plain.csv > plain.txt || fail "plain"
"${run[@]}" --plan plan.json --steps 100 --validate text:text.txt --validate-every 40 --validate-batches 3 --log log.csv \
    --save-best best.state --save end.state --tensorboard events > validated.txt || fail "validated"
"${run[@]}" --plan all.json --workers 2 --steps 100 --validate text:text.txt --validate-every 40 --validate-batches 3 --log all.csv \
    > all.txt || fail "keep-all"
cmp log.csv all.csv || fail "other validations under another plan"
[ "$(cut -d, -f1-3 plain.csv)" = "$(cut -d, -f1-3 log.csv)" ] || fail "validations change the training"
[ "$(grep -cE 'p[+-][0-9]+,[0-9.e-]+,[0-9.]+$' log.csv)" -eq 3 ] || fail "not 3 validations in the log: $(cat log.csv)"
grep -q '^step    100  validation loss .*, perplexity .*, accuracy .* of 384)$' validated.txt || fail "$(cat validated.txt)"
grep -q '^waited for data ' validated.txt || fail "no time of waiting"
cmp best.state end.state || fail "the last validation was the best, and its state is another"
"${run[@]}" --plan plan.json --steps 50 --validate text:text.txt --validate-every 40 --validate-batches 3 --log two.csv \
    --save half.state > /dev/null || fail "half"
grep -q '"best": "0x' half.state || fail "the state knows no best validation"
"${run[@]}" --plan plan.json --steps 100 --validate text:text.txt --validate-every 40 --validate-batches 3 --log two.csv \
    --resume half.state --save two.state > /dev/null || fail "resumed"
[ "$(sed 51d log.csv)" = "$(sed 51d two.csv)" ] || fail "resumed: another log" # the end of the first half was validated too

# Data that get worse stop it, and the best state stays.
"${run[@]}" --plan plan.json --steps 60 --validate text:other.txt --validate-every 2 --validate-batches 1 --patience 3 \
    --save-best early.state --save late.state > early.txt || fail "early stop"
grep -q 'no lower validation loss in 3 validations' early.txt || fail "it did not stop: $(tail -5 early.txt)"
step() { sed -n '1s/.*"step": \([0-9]*\),.*/\1/p' "$1"; }
[ "$(step late.state)" -eq $(($(step early.state) + 6)) ] || fail "stopped at $(step late.state), best at $(step early.state)"

# A validation that an interrupt ended is made when the training goes on: state and log are those of one that was left alone.
judged=("${run[@]}" --plan plan.json --steps 30 --validate text:other.txt --validate-every 10 --patience 9)
"${judged[@]}" --validate-batches 3 --save alone.state --log alone.csv > /dev/null || fail "left alone"
"${judged[@]}" --validate-batches 1000000000 --save broken.state --log broken.csv > /dev/null 2>&1 &
pid=$!
for _ in $(seq 12000); do [ "$(wc -l < broken.csv 2> /dev/null || echo 0)" -ge 10 ] && break; sleep 0.005; done
sleep 0.2 # step 10 takes a millisecond, its validation hours
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "interrupted in a validation"
grep -q '"step": 10, .*"due": true' broken.state || fail "not in the validation after step 10: $(head -1 broken.state)"
"${judged[@]}" --validate-batches 3 --resume broken.state --save broken.state --log broken.csv > /dev/null || fail "go on in a validation"
cmp alone.state broken.state || fail "another state after an interrupted validation"
cmp alone.csv broken.csv || fail "another log after an interrupted validation"

# No output takes the place of what is read or of another output; a state takes that of the one it continues.
cp end.state go-on.state
"${run[@]}" --plan plan.json --steps 101 --resume go-on.state --save go-on.state > /dev/null || fail "a state in place"
refuse 2 "text.txt: --log would replace the file of --data" "${run[@]}" --plan plan.json --log ./text.txt
refuse 2 "other.txt: --save would replace the file of --validate" "${run[@]}" --plan plan.json --validate text:other.txt --save other.txt
refuse 2 "plan.json: --trace would replace the file of --plan" "${run[@]}" --plan plan.json --trace plan.json
refuse 2 "fast.json: --export would replace the file of the model" "${run[@]}" --plan plan.json --export fast.json
refuse 2 "end.state: --log would replace the file of --resume" "${run[@]}" --plan plan.json --resume end.state --log end.state
refuse 2 "new.state: --save-best would replace the file of --save" "${run[@]}" --plan plan.json --validate synthetic --save new.state --save-best new.state
refuse 2 "fast.json: -o would replace the file of the model" "$plan" "${small[@]}" --budget 75% -o fast.json "$model"
refuse 2 "fast.json: -o would replace the file of the model" "$bin_dir/ckpt-profile" "${small[@]}" -o fast.json "$model"
refuse 2 "events: cannot write: Is a directory" "${run[@]}" --plan plan.json --save events

# Of an optimizer whose text is long, a message has the part that differs.
refuse 2 "is of optimizer ...lr=0.006.*; this run has ...lr=0.5 " "${run[@]}" --plan plan.json --resume end.state --lr 0.5

# A state evaluates other data, other batches and other threads; training refuses them.
refuse 2 "other data" "$train" "${small[@]}" --plan plan.json --data text:other.txt --resume end.state "$model"
"$plan" --set batch=2 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --threads 2 --budget 100% -o two.json "$model" > /dev/null ||
    fail "plan of another batch"
"$train" --set batch=2 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --plan two.json --data text:text.txt \
    --resume end.state --evaluate 3 --json "$model" > evaluated.json || fail "evaluated with another batch"
python3 - evaluated.json <<'EOF' || fail "evaluation: $(cat evaluated.json)"
import json, sys
found = json.load(open(sys.argv[1]))["evaluation"]
assert found["counted"] == 3 * 2 * 32 and found["right"] > 0.8 * found["counted"], found
EOF

# TensorBoard's file, by the description of its format and nothing of ours.
python3 - events log.csv <<'EOF' || fail "events"
import csv, glob, struct, sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return (((crc >> 15) | (crc << 17)) + 0xa282ead8) & 0xffffffff
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]; at += 1
            value |= (byte & 127) << shift; shift += 7
            if byte < 128: return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: yield key >> 3, varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at:at + length]; at += length
[name] = glob.glob(sys.argv[1] + "/events.out.tfevents.*")
data, events = open(name, "rb").read(), []
while data:
    length, check = struct.unpack("<QI", data[:12])
    assert crc32c(data[:8]) == check and crc32c(data[12:12 + length]) == struct.unpack("<I", data[12 + length:16 + length])[0]
    events.append(dict(fields(data[12:12 + length]))); data = data[16 + length:]
assert events[0][3] == b"brain.Event:2"
points = {}
for event in events[1:]:
    point = dict(fields(dict(fields(event[5]))[1]))
    points[point[1].decode(), event[2]] = struct.unpack("<f", point[2])[0]
rows = list(csv.DictReader(open(sys.argv[2])))
assert len(points) == 100 + 2 * 3, len(points)
for row in rows:
    assert points["loss/train", int(row["step"])] == float.fromhex(row["loss_hex"])
    if row["validation"]:
        assert abs(points["loss/validation", int(row["step"])] - float(row["validation"])) < 1e-6
        assert abs(points["accuracy/validation", int(row["step"])] - float(row["accuracy"])) < 1e-5
EOF

# Text: what was learned goes on where the prompt ends, beyond the window too; the same seed draws the same.
generate=("${run[@]}" --plan plan.json --resume end.state)
"${generate[@]}" --generate 60 --prompt cdef > learned.txt || fail "--generate"
grep -q '^cdefghabcdefghabcdefghabcdefghabcdefgh' learned.txt || fail "it has not learned: $(cat learned.txt)"
"${generate[@]}" --generate 40 --prompt ab --temperature 3 > drawn1.txt || fail "--temperature"
"${generate[@]}" --generate 40 --prompt ab --temperature 3 > drawn2.txt || fail "--temperature again"
"${generate[@]}" --generate 40 --prompt ab --temperature 3 --top-k 1 > drawn3.txt || fail "--top-k"
cmp drawn1.txt drawn2.txt || fail "drawn otherwise the second time"
cmp -s drawn1.txt drawn3.txt && fail "a temperature of 3 draws the likeliest alone"
grep -q '^abcdefghabcdefgh' drawn3.txt || fail "--top-k 1 is not the likeliest: $(cat drawn3.txt)"
"$plan" --budget 100% -t 1 -o mlp.json "$source_dir/models/mlp.json" > /dev/null || fail "plan of an MLP"
refuse 2 "generates no text" "$train" --plan mlp.json --generate 3 "$source_dir/models/mlp.json"
refuse 2 "needs --validate SOURCE" "${run[@]}" --plan plan.json --patience 2
refuse 2 "needs --generate N" "${run[@]}" --plan plan.json --top-k 2
refuse 2 "needs --temperature T" "${generate[@]}" --generate 3 --top-k 2
refuse 2 "trains nothing" "${generate[@]}" --generate 3 --steps 9
refuse 2 "reading --validate: while opening the data: no-such-file" "${run[@]}" --plan plan.json --validate text:no-such-file
refuse 2 "temperature takes a number" "${generate[@]}" --generate 3 --temperature hot

# Another optimizer than the file's is another plan and another training; what both have stays.
"$plan" "${small[@]}" --optimizer adafactor --gradients fused --budget 75% -o factor.json "$model" > /dev/null || fail "plan with Adafactor"
"${run[@]}" --plan factor.json --optimizer adafactor --steps 5 --save factor.state > factor.txt || fail "Adafactor"
grep -q "measured peak .*(equal)" factor.txt || fail "Adafactor: peaks differ"
grep -q '"optimizer": "adafactor lr=0.006' factor.state || fail "the model's rate is gone: $(head -1 factor.state)"
refuse 2 "of another structure" "${run[@]}" --plan factor.json --steps 5
refuse 2 "optimizer of adafactor\|adafactor" "${run[@]}" --plan plan.json --resume factor.state
"$plan" "${small[@]}" --optimizer sgd:momentum=0.9,nesterov=true,lr=0.5 --budget 75% -o sgd.json "$model" > /dev/null || fail "plan with SGD"
grep -q -- '--optimizer.*sgd:momentum=0.9,nesterov=true,lr=0.5' sgd.json || fail "the plan does not say its optimizer"
refuse 2 "beta7" "$plan" "${small[@]}" --optimizer lion:beta7=1 --budget 75% "$model"
refuse 2 "wanted NAME:KEY=NUMBER" "$plan" "${small[@]}" --optimizer lion:beta1 --budget 75% "$model"
refuse 2 "wanted a number, true or false" "$plan" "${small[@]}" --optimizer lion:lr=fast --budget 75% "$model"

# A damaged file of tokens stops the training with its name, and no state is written.
python3 -c 'import struct,sys; sys.stdout.buffer.write(struct.pack("<400H", *[t % 300 for t in range(400)]))' > tokens.bin
refuse 2 "tokens.bin: token 256 is 256, but input ids takes values below 256" "$train" "${small[@]}" --plan plan.json --json --data tokens:tokens.bin --save none.state \
    --steps 20 "$model"
[ ! -e none.state ] || fail "a state of a training that failed"
echo "validations, early stop, logs and text hold"
