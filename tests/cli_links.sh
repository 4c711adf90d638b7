#!/usr/bin/env bash
# What each program links: no kernel where nothing is computed, and no GLPK (GPL-3) beside Graphviz (EPL) or CUDA.
# Arguments: source folder, folder of the programs.
set -euo pipefail
bin=$2
failed=0
# without PROGRAM LIBRARY...: none of them among its shared libraries
without() {
    local program=$1 library
    shift
    for library in "$@"; do
        if grep -q "lib${library}[.-]" <<<"$(ldd "$bin/$program")"; then
            echo "FAILED: $program links $library"
            failed=1
        fi
    done
}
without ckpt-plan dnnl gomp cairo gvc cgraph cudart cublasLt cudnn cupti
without ckpt-graph dnnl gomp glpk cudart cublasLt cudnn cupti
without ckpt-view dnnl gomp glpk gvc cgraph cudart cublasLt cudnn cupti
without ckpt-train glpk gvc cgraph cairo cudart cublasLt cudnn cupti # CUDA only when it is asked for
without ckpt-profile glpk gvc cgraph cairo cudart cublasLt cudnn cupti
for program in "$bin"/test_plan_*; do # the planner's tests have GLPK
    [ ! -x "$program" ] || without "$(basename "$program")" cudart cublasLt cudnn cupti gvc cgraph
done
for program in ckpt-plan ckpt-graph ckpt-view; do
    if grep -q ' ckpt_cpu_' <<<"$(nm "$bin/$program")"; then
        echo "FAILED: $program holds kernels"
        failed=1
    fi
done
# The test must be able to see what it forbids.
if ! grep -q 'libdnnl[.-]' <<<"$(ldd "$bin/ckpt-train")" || ! grep -q 'libgvc[.-]' <<<"$(ldd "$bin/ckpt-graph")" ||
    ! grep -q ' ckpt_cpu_' <<<"$(nm "$bin/ckpt-train")"; then
    echo "FAILED: what must be linked is not found"
    failed=1
fi
[ $failed = 0 ]
