# Sourced by the scripts that drive ckpt-profile and ckpt-train: what a refusal must look like.
fail() { echo "FAILED: $*"; exit 1; }

# refuse CODE "words of the line" command...: that exit code, one line on stderr with those words, nothing on stdout
refuse() {
    local code=$1 words=$2
    shift 2
    "$@" > refused.out 2> refused.err
    local found=$?
    [ $found -eq "$code" ] || fail "$*: exit $found, wanted $code: $(cat refused.err)"
    [ "$(wc -l < refused.err)" -eq 1 ] || fail "$*: wanted one line, found: $(cat refused.err)"
    grep -q -- "$words" refused.err || fail "$*: wanted \"$words\" in: $(cat refused.err)"
    [ ! -s refused.out ] || fail "$*: something on standard output: $(cat refused.out)"
}
