#!/usr/bin/env bash
# labels: cli; long under sanitizers
# What each program links: no kernel where nothing is computed, no GLPK (GPL-3) beside Graphviz (EPL) or CUDA, and CUPTI
# nowhere: it is opened at run time. What comes into programs of others brings the C library and no names.
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
without ckpt-plan dnnl gomp glpk cairo gvc cgraph cudart cublasLt cudnn mpi
without ckpt-graph dnnl gomp glpk cudart cublasLt cudnn
without ckpt-view dnnl gomp glpk gvc cgraph cudart cublasLt cudnn
without ckpt-train glpk gvc cgraph cairo cudart cublasLt cudnn mpi open-pal # CUDA and MPI only when they are asked for
without ckpt-profile glpk gvc cgraph cairo cudart cublasLt cudnn mpi
for program in "$bin"/test_plan_*; do # the planner's tests have GLPK
    [ ! -x "$program" ] || without "$(basename "$program")" cudart cublasLt cudnn gvc cgraph
done
for program in ckpt-plan ckpt-graph ckpt-view; do
    if grep -q ' ckpt_cpu_' <<<"$(nm "$bin/$program")"; then
        echo "FAILED: $program holds kernels"
        failed=1
    fi
done
needs() { readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; } # the libraries it names
for file in "$bin"/* "$bin"/../lib/*.so; do
    if [ -f "$file" ] && [ -x "$file" ] && grep -q '^libcu\(pti\|da\)\.' <<<"$(needs "$file")"; then
        echo "FAILED: $file links CUPTI or the CUDA driver"
        failed=1
    fi
done
inject=$bin/../lib/libckpt_inject.so
if [ -e "$inject" ]; then
    # ld-linux: of __tls_get_addr; lib*san: of CKPT_SANITIZE; up to glibc 2.33 threads and dlopen were libraries beside it
    more=$(needs "$inject" |
        grep -v '^libc\.so\|^ld-linux\|^lib[a-z]*san\.so\|^libpthread\.so\|^libdl\.so' || true)
    shown=$(nm -D --defined-only "$inject" | awk '{ print $3 }' | tr '\n' ' ')
    if [ -n "$more" ] || [ "$shown" != "InitializeInjection InitializeInjectionNvtx InitializeInjectionNvtx2 " ]; then
        echo "FAILED: libckpt_inject.so links ${more:-nothing more} and shows $shown"
        failed=1
    fi
fi
glpk=$bin/../lib/libckpt_glpk.so
shown=$(nm -D --defined-only "$glpk" | awk '{ print $3 }' | tr '\n' ' ')
if [ "$shown" != "ckpt_solver_plugin " ] || ! grep -q '^libglpk\.' <<<"$(needs "$glpk")"; then
    echo "FAILED: libckpt_glpk.so shows $shown and links $(needs "$glpk" | tr '\n' ' ')"
    failed=1
fi
mpi=$bin/../lib/libckpt_mpi.so
if [ -e "$mpi" ]; then
    shown=$(nm -D --defined-only "$mpi" | awk '{ print $3 }' | tr '\n' ' ')
    if [ "$shown" != "ckpt_mpi " ] || ! grep -q '^libmpi\.' <<<"$(needs "$mpi")"; then
        echo "FAILED: libckpt_mpi.so shows $shown and links $(needs "$mpi" | tr '\n' ' ')"
        failed=1
    fi
fi
# The test must be able to see what it forbids.
if ! grep -q 'libdnnl[.-]' <<<"$(ldd "$bin/ckpt-train")" || ! grep -q 'libgvc[.-]' <<<"$(ldd "$bin/ckpt-graph")" ||
    ! grep -q ' ckpt_cpu_' <<<"$(nm "$bin/ckpt-train")" || ! grep -q '^libc\.' <<<"$(needs "$bin/ckpt-plan")"; then
    echo "FAILED: what must be linked is not found"
    failed=1
fi
[ $failed = 0 ]
