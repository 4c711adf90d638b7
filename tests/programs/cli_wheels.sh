#!/usr/bin/env bash
# labels: cli; long under sanitizers
# What the build finds in NVIDIA's wheels (cmake/ckpt_wheels.cmake): folders as wheels of CUDA 13 and 12 make them, in
# front of any wheels of this machine's Python. Headers and libraries are empty files.
set -u
source_dir=$1 work_dir=$3
fail() { echo "FAILED: $*" >&2 && exit 1; }
if ! command -v cmake > /dev/null || ! command -v python3 > /dev/null; then echo "no cmake or no python3"; exit 77; fi
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

cat > find.cmake << END
include($source_dir/cmake/ckpt_wheels.cmake)
ckpt_find_in_wheels(cudnn HEADER ckpt_dnn.h INCLUDE_DIR DNN LIBRARY libckpt_dnn.so.9 FILE DNN_LIBRARY)
ckpt_find_in_wheels(cuda_cupti HEADER ckpt_cupti.h INCLUDE_DIR CUPTI)
message("\${DNN} \${DNN_LIBRARY} \${CUPTI}")
END
look() { # WHAT WANTED FILE...: only these files are there
    local what=$1 wanted=$2 found
    shift 2
    rm -rf site
    for file in "$@"; do mkdir -p "site/nvidia/$(dirname "$file")" && touch "site/nvidia/$file"; done
    found=$(PYTHONPATH=$PWD/site cmake -P find.cmake 2>&1) || fail "$what: $found"
    found=$(echo "$found" | sed "s|$PWD/site/nvidia/||g; s/^ *//; s/ *$//; s/  */ /g")
    [ "$found" = "$wanted" ] || fail "$what: found \"$found\", wanted \"$wanted\""
}
look "nothing" "" nothing/include/other.h
look "CUDA 13" "cudnn/include cudnn/lib/libckpt_dnn.so.9 cu13/include" cudnn/include/ckpt_dnn.h cudnn/lib/libckpt_dnn.so.9 cu13/include/ckpt_cupti.h
look "all in cu13" "cu13/include cu13/lib/libckpt_dnn.so.9 cu13/include" cu13/include/ckpt_dnn.h cu13/lib/libckpt_dnn.so.9 cu13/include/ckpt_cupti.h
look "CUDA 12" "cudnn/include cudnn/lib/libckpt_dnn.so.9 cuda_cupti/include" cudnn/include/ckpt_dnn.h cudnn/lib/libckpt_dnn.so.9 \
    cuda_cupti/include/ckpt_cupti.h
look "a header without its library" "cudnn/include cudnn/lib/libckpt_dnn.so.9" cu13/include/ckpt_dnn.h cudnn/include/ckpt_dnn.h \
    cudnn/lib/libckpt_dnn.so.9
echo "headers and libraries are found in wheels of CUDA 13 and 12, each pair in one place"
