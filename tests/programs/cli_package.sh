#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The Debian packages: made from this build, looked into, unpacked and used. Arguments: source folder, folder of the
# programs, work folder. Slow where programs are large: under sanitizers nobody packs them.
set -euo pipefail
source=$1 bin=$2 work=$3
fail() { echo "FAILED: $*"; exit 1; }
if grep -q '^CKPT_SANITIZE:STRING=.' "$bin/../CMakeCache.txt" || ! command -v dpkg-shlibdeps >/dev/null; then
    echo "not packed: a build with sanitizers, or no dpkg-dev"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work/root"
(cd "$work" && cpack --config "$bin/../CPackConfig.cmake" -B "$work" >"$work/log" 2>&1) || fail "$(tail -5 "$work/log")"
for package in ckpt libckpt0 libckpt-dev; do
    dpkg-deb -x "$work"/${package}_*.deb "$work/root"
done
dpkg-deb -f "$work"/ckpt_*.deb Depends | grep -q libc6 || fail "$(dpkg-deb -I "$work"/ckpt_*.deb)"
[ "$(dpkg-deb -f "$work"/ckpt_*.deb Version)" = "$("$bin/ckpt-plan" --version | cut -d' ' -f2)" ] || fail "version"
for program in $(cd "$bin" && ls | grep -x 'ckpt-[a-z]*'); do
    [ -x "$work/root/usr/bin/$program" ] || fail "no $program"
    zcat "$work/root/usr/share/man/man1/$program.1.gz" | grep -q '^\.SH OPTIONS' || fail "no man page of $program"
    for file in bash-completion/completions/$program zsh/site-functions/_$program fish/vendor_completions.d/$program.fish; do
        [ -s "$work/root/usr/share/$file" ] || fail "no $file"
    done
done
[ -e "$work/root/usr/include/ckpt.h" ] || fail "no header"
[ -n "$(find "$work/root" -name libckpt.so.0)" ] || fail "no libckpt.so.0"
dpkg-deb -f "$work"/ckpt_*.deb Depends | grep -q libglpk || fail "$(dpkg-deb -I "$work"/ckpt_*.deb)"
dpkg-deb -f "$work"/libckpt0_*.deb Depends | grep -q libc6 || fail "$(dpkg-deb -I "$work"/libckpt0_*.deb)"
! dpkg-deb -f "$work"/libckpt0_*.deb Depends | grep -q 'glpk\|gomp\|dnnl' || fail "libckpt0 depends on too much"
"$work/root/usr/bin/ckpt-plan" --budget 60% "$work/root/usr/share/ckpt/models/byte-gpt.json" -o "$work/plan.json" >/dev/null
said=$("$work/root/usr/bin/ckpt-plan" --strategy ilp --effort 0 --budget 100% "$work/root/usr/share/ckpt/models/mlp.json" 2>&1 >/dev/null) && [ -z "$said" ] ||
    fail "ckpt-plan finds no solver: $said"
lint=()
if [ -e "$bin/../lib/libckpt_mpi.so" ]; then # what several ranks need is a package of its own
    lint=("$work"/ckpt-mpi_*.deb)
    dpkg-deb -x "${lint[0]}" "$work/root"
    [ -n "$(find "$work/root" -name libckpt_mpi.so)" ] || fail "no libckpt_mpi.so"
    dpkg-deb -f "${lint[0]}" Depends | grep -q 'libopenmpi\|libmpich' || fail "$(dpkg-deb -I "${lint[0]}")"
    ! dpkg-deb -f "$work"/ckpt_*.deb Depends | grep -q 'libopenmpi\|libmpich' || fail "ckpt depends on MPI"
fi
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "$work"/ckpt_*.deb "$work"/libckpt0_*.deb "$work"/libckpt-dev_*.deb "${lint[@]}" >"$work/lint" 2>&1 ||
        fail "$(cat "$work/lint")"
fi
echo "$(cd "$work" && ls -1 ./*.deb | tr '\n' ' ')unpacked and used"
