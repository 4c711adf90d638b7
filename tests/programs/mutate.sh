#!/usr/bin/env bash
# Shows that the suite fails when it should: applies each of these errors to a copy of the sources, builds, and runs the
# tests named beside it. An error that no test notices is reported, exit 1. Not part of the suite (minutes).
#
#   [ONLY="name name..."] tests/programs/mutate.sh [SOURCE_DIR [WORK_DIR]]
set -u
export OMP_WAIT_POLICY=passive
source_dir=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
work_dir=${2:-$(mktemp -d)}
training="test_identity test_executor_hand test_executor_gradient test_executor_order test_no_allocation test_gpu_train"

# name | file | sed expression | what it is | tests that are run, where they are not those of training
mutations=(
    "dropout-counter|kernels/cpu/dropout.c|s/args->seed, args->step,/args->seed, args->step + args->recomputed,/|a recomputed dropout draws another mask"
    "attention-dropout-counter|kernels/cpu/attention.c|s/args->seed, args->step,/args->seed, args->step + args->recomputed,/|recomputed attention draws another mask"
    "statistics-twice|kernels/cpu/batchnorm.c|s/if (!args->recomputed)/if (args->node != NULL)/|batch norm's running statistics are updated by recomputations too"
    "recomputed-forgotten|executor/setup/wire.c|s/action->args.recomputed = step->recomputed;/action->args.recomputed = false;/|the executor does not tell kernels that a run is a recomputation"
    "overlap|planner/placement/allocate_greedy.c|s/allocation\[i\].offset = p.best_offset\[i\];/allocation[i].offset = p.best_offset[i] >= 64 ? p.best_offset[i] - 64 : 0;/|places overlap by 64 bytes"
    "overlap-unchecked|planner/placement/allocate_greedy.c planner/replay/check.c|s/allocation\[i\].offset = p.best_offset\[i\];/allocation[i].offset = p.best_offset[i] - (i % 7 == 3 \&\& p.best_offset[i] >= 64 ? 64 : 0);/;s/under->offset + under->bytes > allocation->offset/under->offset + under->bytes > allocation->offset + 64/|places overlap and the checker looks away"
    "missing-input-accumulation|ops/lowering/lower_layer.c|s/role->grad_in_adds |= (uint64_t)1 << k;/role->grad_in_adds |= 0;/|the gradient of a value read twice is overwritten"
    "missing-parameter-accumulation|ops/lowering/lower_layer.c|s/role->grad_param_adds |= (uint64_t)1 << k;/role->grad_param_adds |= 0;/|the gradient of a tied parameter is overwritten"
    "staged-sum-lost|kernels/device.c|s/if (grad_in\[k\] != args->grad_in\[k\])/if (grad_in[k] == NULL)/|staged gradients are never added"
    "free-too-much|executor/run/step.c|s/return poison(program, action->allocation, action->bytes, err);/return poison(program, action->allocation, action->bytes + 64, err);/|a free reaches 64 bytes into its neighbour"
    "step-not-told|executor/run/step.c|s/api->begin(program->device, run->seed, step,/api->begin(program->device, run->seed, 0,/|a replayed step draws the first step's masks"
    "wait-forgotten|executor/setup/order.c|s/raise_to(&need, &o->buffer\[op->adds.at\[i\]\].touched);/(void)0;/|an addition does not wait for the copy that reads what it changes"
    "tag-lost|cupti/records.c|s/a->tag = fact->value;/a->tag = 0;/|what is recorded under a tag loses it|test_cupti_recorder"
    "gap-twice|profiler/join.c|s/return r->end_ns - r->start_ns - r->busy_ns;/return 2 * (r->end_ns - r->start_ns - r->busy_ns);/|time between kernels counts twice|test_gpu_profile"
    "spool-cut|cupti/spool_read.c|s/if (length > r->end - at) {/if (length > r->end - at + 1) {/|a record whose last byte was cut is read|test_cupti_stream test_cupti_trace"
    "pickle-global|imports/pickle_codes.c|s/\"GLOBAL\", CKPT_DO_REFUSE_NAMED/\"GLOBAL\", CKPT_DO_NONE/|a pickle may name code|test_import_pickle"
    "places-elsewhere|executor/setup/wire_address.c|s/memory.arena.at + allocation->offset;/memory.arena.at + allocation->offset - (allocation->buffer == 1 \&\& allocation->offset >= 64 ? 64 : 0);/|the executor puts a buffer elsewhere than the plan says|test_executor_hand test_identity"
    "kept-for-nothing|viz/timeline/live_ranges.c|s/return last >= range->from ? last : -1;/return range->to;/|a buffer is said to be kept for the step that frees it|test_viz_live_ranges"
    "holm-flat|viz/compare/rank_tests.c|s/most = fmax(most, \*sorted\[i\] \* (count - i));/most = *sorted[i] * count;/|every p of a profile's rows is corrected alike|test_viz_rank_tests"
    "outline-believed|core/formats/plan.c|s/return ckpt_outline_compare(&plan->outline, b->graph, b->err);/return CKPT_OK;/|a plan's outline may be of another graph|test_core_plan"
    "release-ignored|core/formats/timeline.c|s/^    drop(s, before);/    (void)s;/|what a program releases stays in memory|test_core_timeline"
    "replicas-backwards|executor/run/exchange.c|s/for (int q = 1; q < e.me; q++) {/for (int q = e.me - 1; q >= 1; q--) {/|gradients of replicas are added in another order|test_ranks_executor"
    "sum-of-copies-lost|executor/run/exchange.c|s/case CKPT_TASK_REDUCE_TIED: return reduce_tied(/case CKPT_TASK_REDUCE_TIED: return program != NULL ? CKPT_OK : reduce_tied(/|copies of a tied parameter drift apart|test_executor_scheme test_ranks_executor"
    "one-mask-for-all|executor/program/program.c|s/(uint64_t)j;/0 * (uint64_t)j;/|all micro-batches of a step draw the masks of the first|test_executor_scheme test_ranks_executor"
    "shards-on-each-other|ops/lowering/spread.c|s/bucket->shard = \*shard;/bucket->shard = 0;/|all buckets keep their optimizer state in one place|test_core_scheme test_ranks_executor"
    "sum-not-mean|executor/program/program.c|s/((double)network->scheme.micro_batches \* network->scheme.replicas \* /(1.0 * /|gradients of micro-batches and replicas are summed, not averaged|test_executor_scheme"
)

prepare() { # a copy of what the build needs, and a build of it
    mkdir -p "$work_dir"
    rm -rf "$work_dir/source" "$work_dir/build"
    mkdir "$work_dir/source"
    (cd "$source_dir" && tar cf - --exclude=./.git --exclude=./build* --exclude=./out --exclude=./.venv .) | tar xf - -C "$work_dir/source" || exit 2
    cmake -S "$work_dir/source" -B "$work_dir/build" -G Ninja -DCKPT_CUDA=OFF > "$work_dir/configure.log" 2>&1 ||
        { cat "$work_dir/configure.log"; exit 2; }
    mkdir -p "$work_dir/build/tests/scratch"
}

build() { # TEST...
    cmake --build "$work_dir/build" --parallel "$(nproc)" --target "$@" > "$work_dir/build.log" 2>&1
}

# wanted NAME: this one is to be applied
wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " = *" $1 "* ]]; }

prepare
tests=$(for mutation in "${mutations[@]}"; do
    IFS="|" read -r name _ _ _ own <<< "${mutation//|=/@or@}"
    wanted "$name" && tr ' ' '\n' <<< "${own:-$training}"
done | sort -u)
[ -n "$tests" ] || { echo "no such mutation: ${ONLY:-}"; exit 2; }
# shellcheck disable=SC2086
build $tests || { tail -20 "$work_dir/build.log"; echo "the sources as they are do not build"; exit 2; }
for test in $tests; do
    "$work_dir/build/bin/$test" > "$work_dir/clean.log" 2>&1 || { cat "$work_dir/clean.log"; echo "$test fails unmutated"; exit 2; }
done
echo "unmutated: all pass"
unnoticed=0
# shellcheck disable=SC2086 # names of tests
for mutation in "${mutations[@]}"; do
    IFS="|" read -r name files expression about own <<< "${mutation//|=/@or@}"
    expression=${expression//@or@/|=}
    wanted "$name" || continue
    tests=${own:-$training}
    changed=0
    for file in $files; do
        cp "$work_dir/source/$file" "$work_dir/$(basename "$file").kept"
        sed -i "$expression" "$work_dir/source/$file"
        cmp -s "$work_dir/source/$file" "$work_dir/$(basename "$file").kept" || changed=1
    done
    caught=""
    if [ $changed -eq 0 ]; then
        caught=none
        about="$about: NOT APPLIED, the source has changed"
        unnoticed=1
    elif ! build $tests; then
        caught=none
        about="$about: DOES NOT BUILD"
        unnoticed=1
    else
        for test in $tests; do
            timeout 300 "$work_dir/build/bin/$test" > "$work_dir/$name.$test.log" 2>&1 || caught="$caught $test"
        done
        [ -n "$caught" ] || { caught=" NOBODY"; unnoticed=1; }
    fi
    printf '%-32s %-64s noticed by%s\n' "$name" "$about" "$caught"
    for file in $files; do
        cp "$work_dir/$(basename "$file").kept" "$work_dir/source/$file"
    done
done
[ $# -ge 2 ] || rm -rf "$work_dir"
exit $unnoticed
