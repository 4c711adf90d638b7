#!/usr/bin/env bash
# labels: cli; not under sanitizers; takes 50 s
# What a newcomer does: the source archive and the wheel made of it (python -m build), installed by pip; then, without a
# path to this build, examples/train_torch.py and the programs. The virtual environment borrows PyTorch from that of
# scripts/pytorch-venv, and PyPI is not asked. A build folder within the unpacked sources lets ccache know them again.
set -u
source=$1 work=$3
fail() { echo "FAILED: $*" >&2 && exit 1; }
# shellcheck source=tests/support/support_torch.sh
. "$source/tests/support/support_torch.sh"
torch_python "$source" build scikit_build_core
unset PYTHONPATH CKPT_LIBRARY LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1 CKPT_TORCH_CACHE=$work/cache OMP_WAIT_POLICY=passive
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
"$python" -m build --no-isolation -C build-dir=build --outdir "$work/dist" "$source/python" >build.log 2>&1 || fail "$(tail -n 30 build.log)"
"$python" -m venv --without-pip venv || fail "no virtual environment"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$site/borrowed.pth"
"$python" -m pip --python venv/bin/python install --quiet --no-deps --no-index dist/ckpt_torch-*.whl || fail "pip"

# It needs the C library alone, and pip knows everything that it has put there.
for file in venv/bin/ckpt-* "$site"/ckpt_torch/_ckpt/lib/*; do
    others=$(ldd "$file" | grep -vE '^\s*(linux-vdso|linux-gate|lib(c|m|dl|pthread)\.so|/lib.*/ld-)')
    [ -z "$others" ] || fail "$file needs more than the C library: $others"
done
[ "$(ls venv/bin | grep '^ckpt' | tr '\n' ' ')" = "ckpt-compare ckpt-graph ckpt-plan ckpt-view " ] || fail "programs: $(ls venv/bin)"

venv/bin/python "$source/examples/train_torch.py" plan >said 2>&1 || fail "$(cat said)"
grep -q '^measured peak *[0-9.]* MB' said || fail "no report: $(cat said)"
"$python" -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' plan/memory.svg || fail "no picture"
grep -q '>peak [0-9.]* MB<' plan/memory.svg || fail "a picture without a peak"
venv/bin/python -c 'import ckpt_torch, importlib.metadata as m; assert ckpt_torch.__version__ == m.version("ckpt-torch")' || fail "versions"

# The programs take what the report saved; what needs Cairo or Graphviz is refused in one line.
PATH=$work/venv/bin:$PATH
ckpt-plan --check plan/plan.json plan/graph.json >/dev/null || fail "ckpt-plan --check"
ckpt-compare plan/plan.json plan/plan.json >/dev/null || fail "ckpt-compare"
ckpt-view plan/predicted.json -o memory.html && ckpt-graph plan/graph.json --plan plan/plan.json -o graph.dot || fail "pictures"
cmp <(ckpt-view --format svg plan/predicted.json) plan/memory.svg || fail "ckpt-view draws something else"
[ "$(ckpt-view plan/predicted.json -o memory.png 2>&1)" = \
    'ckpt-view: found format "png", wanted one of svg, txt (this build has no Cairo, which draws png and pdf)' ] || fail "png"
[ "$(ckpt-graph plan/graph.json -o graph.svg 2>&1)" = \
    'ckpt-graph: found format "svg", wanted dot: this build has no Graphviz to lay it out' ] || fail "svg of a graph"
[ ! -e memory.png ] && [ ! -e graph.svg ] || fail "files of what was refused"
echo "built from its source archive, installed; a model trained under a budget and drawn"
