#!/usr/bin/env bash
# labels: cli long
# scripts/gpu_bundle, rehearsed: packs this build, unpacks it in another folder, and runs it there, where the folders it
# comes from are hidden as far as this system lets us. Arguments: source folder, folder of the programs, work folder.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
build_dir=$(cd "$bin_dir/.." && pwd)
fail() { echo "FAILED: $*"; exit 1; }
if [ ! -e "$build_dir/lib/libckpt_cuda.so" ] || [ ! -e "$build_dir/lib/libckpt_inject.so" ] || [ ! -e "$source_dir/.git" ] ||
    grep -q '^CKPT_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt" || ! command -v dpkg-query git xz objdump >/dev/null; then
    echo "nothing to pack: a build without CUDA or CUPTI, or with sanitizers, sources without git, or no Debian"
    exit 77
fi
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1
there=$(mktemp -d) || exit 1 # not under the sources, which are hidden below
trap 'rm -rf "$there"' EXIT

"$source_dir/scripts/gpu_bundle" bundle.tar.xz --from "$build_dir" >bundle.log 2>&1 || fail "$(tail -n 3 bundle.log)"
[ "$(tail -n 1 bundle.log | grep -c ' MiB$')" = 1 ] || fail "no size: $(cat bundle.log)"
tar -C "$there" -xf bundle.tar.xz || fail "not unpacked"
top=$there/ckpt-gpu
[ "$(ls -A "$there")" = ckpt-gpu ] || fail "more than one folder"

# CUDA's libraries are not in it; a machine with a GPU has them, this one where it built.
cuda=$(ldd "$build_dir/lib/libckpt_cuda.so" | sed -n 's|.* => \(/.*\)/libcu[a-zA-Z]*\.so.*|\1|p' | sort -u | paste -sd:)
grep -rlF -e "$source_dir" -e "$build_dir" "$top" >holds.txt && fail "a path of this machine is in $(cat holds.txt)"

# Each test that opens the GPUs there are has a line, and each line is of a file that is there.
list=$top/prebuilt/tests.txt
for file in $(cd "$source_dir/tests" && grep -rlE --include='test_*.c' 'ckpt_gpus_open|ckpt_gpu_open_all' . && find . -name 'test_cud*.c' && ls programs/cli_gpu.sh); do
    name=${file##*/}
    grep -q "^${name%.*} " "$list" || fail "$file has no \"on a GPU: N s, together|alone\", so it would not run on one"
done
while read -r name seconds how command; do
    [ "$seconds" -gt 0 ] && case $how in alone | together) ;; *) false ;; esac || fail "$name $seconds $how"
    [ -e "$top/${command#bash }" ] || fail "$name: no $command"
done <"$list"
[ "$(wc -l <"$list")" -ge 16 ] || fail "few tests: $(cat "$list")"

# Where the programs do not run, one line says why.
export LD_LIBRARY_PATH=$cuda
declines() { # WORDS
    local line
    line=$("$top/scripts/gpu_prebuilt_ok") && fail "taken in spite of: $1"
    [ "$(wc -l <<<"$line")" = 1 ] && grep -q "$1" <<<"$line" || fail "wanted a line with \"$1\", found: $line"
}
line=$("$top/scripts/gpu_prebuilt_ok") && [ -z "$line" ] || fail "not taken: $line"
cp "$top/prebuilt/wants" wants
sed -i 's/^glibc .*/glibc 9.99/' "$top/prebuilt/wants" && declines "want glibc 9.99, this is [0-9]"
sed -i 's/^machine .*/machine pdp11/' "$top/prebuilt/wants" && declines "for pdp11, this is"
cp wants "$top/prebuilt/wants"
mv "$top/prebuilt/lib/libckpt_emulated.so" . && declines "not found: .*libckpt_emulated.so" && mv libckpt_emulated.so "$top/prebuilt/lib/"
LD_LIBRARY_PATH='' ldd "$top"/prebuilt/lib/libckpt_cuda.so | grep -q 'not found' && LD_LIBRARY_PATH='' declines "libcud"
rm -rf "$there/bare" && cp -r "$top/scripts" "$there/bare" && mkdir "$there/x" && mv "$there/bare" "$there/x/scripts"
"$there/x/scripts/gpu_prebuilt_ok" | grep -q "no prebuilt programs" || fail "sources alone"

# The commit travels; so does what the sources are built with, where CMake is told of .deps as gpu_check.sh does.
cmake -DSOURCE_DIR="$top" -DOUTPUT="$there/commit.c" -P "$top/cmake/ckpt_commit.cmake" || fail "commit"
grep -qF "\"$(cat "$top/prebuilt/commit")\"" "$there/commit.c" || fail "commit: $(cat "$there/commit.c")"
cmake -S "$top" -B "$there/build" -DCKPT_CUDA=OFF -DCKPT_MPI=OFF -DCKPT_PICTURES=OFF "-DCMAKE_PREFIX_PATH=$top/.deps" \
    "-DPKG_CONFIG_EXECUTABLE=$top/.deps/bin/pkg-config" >cmake.log 2>&1 || fail "configure: $(tail -n 5 cmake.log)"
for what in DNNL_LIBRARY DNNL_INCLUDE_DIR GLPK_LIBRARY GLPK_INCLUDE_DIR pkgcfg_lib_JANSSON_jansson pkgcfg_lib_CMOCKA_cmocka; do
    grep -q "^$what:[A-Z]*=$top/.deps/" "$there/build/CMakeCache.txt" || fail "$(grep "^$what" "$there/build/CMakeCache.txt")"
done
for library in "$top"/.deps/lib/*.so; do [ -e "$library" ] || fail "$library leads nowhere"; done

# It runs there.
cat >"$there/run.sh" <<'SCRIPT'
set -u
top=$1 source_dir=$2 cuda=$3
fail() { echo "FAILED: $*"; exit 1; }
cd "$top" || exit 1
export CKPT_SOURCE_DIR=$top CKPT_BIN_DIR=$top/prebuilt/bin CKPT_WORK_DIR=$top/scratch
mkdir -p scratch
for program in prebuilt/bin/*; do
    others=$(LD_LIBRARY_PATH='' ldd "$program" | grep '=>' | grep -vE '/prebuilt/bin/\.\./lib/|lib(c|m|dl|rt|pthread)\.so' | grep -vE 'lib(cudart|cublasLt|cudnn)\.so')
    case $program in *.so) others='' ;; esac # takes the program's
    [ -z "$others" ] || fail "$program loads what is not in the bundle: $others"
done
for program in prebuilt/bin/ckpt-*; do
    "$program" --version >/dev/null && "$program" --help >/dev/null || fail "$program does not start"
done
while read -r name _ _ command; do
    case $name in
    test_gpu_values | test_gpu_device | test_gpu_losses | test_gpu_sums | test_gpu_optimizers | test_cudnn | cli_gpu | test_cuda_recorder)
        # shellcheck disable=SC2086 # and not by its own limit, which is for a machine with a GPU and nothing else to do
        LD_LIBRARY_PATH=$cuda timeout 200 $command >scratch/log 2>&1
        code=$?
        [ $code = 0 ] || [ $code = 77 ] || fail "$name: exit $code: $(tail -n 5 scratch/log)"
        echo "$name: $([ $code = 0 ] && echo ran || echo skipped)" ;;
    esac
done <prebuilt/tests.txt
LD_LIBRARY_PATH=$cuda CKPT_TEST_EMULATED=1 prebuilt/bin/test_cuda_recorder >scratch/log 2>&1 || fail "recorder: $(tail -n 5 scratch/log)"
unset CKPT_SOURCE_DIR CKPT_BIN_DIR CKPT_WORK_DIR # by hand
(cd / && "$top/prebuilt/bin/test_gpu_train" >"$top/scratch/log" 2>&1) || fail "by hand: $(tail -n 5 scratch/log)"
[ -e prebuilt/scratch/gpu_train.state ] || fail "by hand, a test writes elsewhere"
ls "$source_dir" 2>/dev/null | grep -q . && echo "the sources were not hidden" || echo "the sources were hidden"
SCRIPT
hide=''
for how in "unshare --mount" "unshare --user --map-root-user --mount"; do
    [ -n "$hide" ] || ! $how mount -t tmpfs none "$source_dir" 2>/dev/null || hide=$how
done
# shellcheck disable=SC2016 # for the other shell
$hide bash -c '[ -z "$4" ] || mount -t tmpfs none "$2" && bash "$0" "$@"' "$there/run.sh" "$top" "$source_dir" "$cuda" "$hide" ||
    fail "in another folder"
tail -n 1 bundle.log
