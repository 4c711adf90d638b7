# Sourced by the scripts that start ckpt-train on several ranks of this machine, after support_refuse.sh and with bin_dir
# set. Everything has a time limit: no test may hang because a rank does.
skip() { echo "$1"; [ "${CI:-}" = true ] && exit 1; exit 77; } # nothing may be missing where the whole suite is meant to run
command -v mpirun > /dev/null || skip "there is no mpirun"
[ -e "$bin_dir/../lib/libckpt_mpi.so" ] || skip "this build has no MPI"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 # more ranks than processors: who waits lets others work
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # what the MPI library keeps is its own

# on COUNT command...: its standard output; the programs' own lines on standard error are in ranks.err
on() {
    local count=$1 code=0
    shift
    timeout 120 mpirun -n "$count" "$@" < /dev/null 2> ranks.all || code=$?
    grep '^ckpt-' ranks.all > ranks.err
    return $code
}

# refuse_on COUNT CODE "words of the line" command...: as refuse, on so many ranks, one of which says why
refuse_on() {
    local count=$1 code=$2 words=$3 found=0
    shift 3
    on "$count" "$@" > refused.out || found=$?
    [ $found -eq "$code" ] || fail "$count ranks of $*: exit $found, wanted $code: $(cat ranks.all)"
    [ "$(wc -l < ranks.err)" -eq 1 ] || fail "$count ranks of $*: wanted one line, found: $(cat ranks.err)"
    grep -q -- "$words" ranks.err || fail "$count ranks of $*: wanted \"$words\" in: $(cat ranks.err)"
    [ ! -s refused.out ] || fail "$count ranks of $*: something on standard output: $(cat refused.out)"
}

# start COUNT command...: in the background; rank K is process $(cat started.K), what ranks say is in started.err
start() {
    local count=$1
    shift
    rm -f started.*
    timeout 120 mpirun -n "$count" bash -c 'echo $$ > started.$OMPI_COMM_WORLD_RANK; exec "$@"' start "$@" \
        < /dev/null > started.out 2> started.err &
    started=$!
}

# wait_rows FILE COUNT: until the log has so many rows, while the training is there
wait_rows() {
    for _ in $(seq 2400); do
        [ -f "$1" ] && [ "$(wc -l < "$1")" -gt "$2" ] && return
        kill -0 "$started" 2> /dev/null || fail "the training has ended: $(cat started.err)"
        sleep 0.025
    done
    fail "no row $2 in $1"
}

# survived COUNT RANK WORDS...: started has ended because RANK died; the others, COUNT in all, say so in one line each,
# which has those words too
survived() {
    local count=$1 dead=$2 code=0 words
    shift 2
    wait "$started" || code=$?
    [ $code -ne 0 ] && [ $code -ne 124 ] || fail "rank $dead was killed: exit $code: $(cat started.err)"
    grep '^ckpt-' started.err > survivors.err
    [ "$(wc -l < survivors.err)" -eq "$count" ] || fail "rank $dead was killed: wanted $count lines: $(cat started.err)"
    for words in "rank $dead has died" "$@"; do
        [ "$(grep -c -- "$words" survivors.err)" -eq "$count" ] || fail "wanted \"$words\" in: $(cat survivors.err)"
    done
}

weights() { sed -n 's/^weights sha256 *//p' "$1"; }

# same_training WANTED FOUND: files *.txt of what was said and *.csv of losses
same_training() {
    [ -n "$(weights "$1.txt")" ] && [ "$(weights "$1.txt")" = "$(weights "$2.txt")" ] ||
        fail "$2: other weights than $1: $(cat "$2.txt")"
    cmp "$1.csv" "$2.csv" || fail "$2: other losses than $1"
    ! grep -q DIFFERENT "$2.txt" || fail "$2: peaks: $(cat "$2.txt")"
}
