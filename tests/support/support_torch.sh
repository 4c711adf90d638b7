# Sourced by tests of the Python package: torch_python SOURCE MODULE... sets python to the interpreter of CKPT_VENV, or of
# scripts/pytorch-venv. Nothing may be missing where the whole suite is meant to run.
torch_python() {
    local module
    python=${CKPT_VENV:-$1/.venv}/bin/python
    shift
    for module in torch "$@"; do
        "$python" -c "import $module" 2>/dev/null && continue
        echo "no Python module $module in ${python%/bin/python}; scripts/pytorch-venv installs it from PyPI"
        [ "${CI:-}" = true ] && exit 1
        exit 77
    done
}
