#!/usr/bin/env bash
# What every program owes its users beside its work: help, a man page and completions that agree, colours where they are
# wanted. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
fail() { echo "FAILED: $*"; exit 1; }
# need PROGRAM: true when it is there; in continuous integration nothing may be missing
need() {
    command -v "$1" >/dev/null && return 0
    [ -z "${CI:-}" ] || fail "$1 is not installed"
    echo "not checked: no $1"
    return 1
}

programs=$(cd "$bin" && ls | grep -x 'ckpt-[a-z]*')
[ "$(wc -w <<<"$programs")" -ge 4 ] || fail "found only: $programs"
checked=0
for program in $programs; do
    "$bin/$program" --help >"$work/help"
    [ "$("$bin/$program" -h)" = "$(cat "$work/help")" ] || fail "$program: -h is not --help"
    # The help of every option begins in the same column, however long its argument.
    ! sed -n '/^options:/,/^$/p' "$work/help" | grep -v '^  .\{28\} [^ ]\|^  \(-.,\|   \) --[^ ]* [^ ]*$\|^ \{31\}[^ ]\|^options:$\|^$' ||
        fail "$program: help overruns its column"
    [ "$(wc -L <"$work/help")" -le 120 ] || fail "$program: $(wc -L <"$work/help") columns of help"
    head -1 "$work/help" | grep -q "^usage: $program" || fail "$program: $(head -1 "$work/help")"
    for form in man bash zsh fish markdown; do
        "$bin/$program" --help-as=$form >"$work/$program.$form"
    done
    # The options of --help, read from its own text, are those of everything else.
    options=$(sed -n '/^options:/,/^$/s/^  \(-., \|    \)--\([a-z0-9-]*\).*/\2/p' "$work/help")
    [ "$(wc -w <<<"$options")" -ge 5 ] || fail "$program: options $options"
    for option in $options; do
        grep -q -- "\\\\-\\\\-$(sed 's/-/\\\\-/g' <<<"$option")\\\\fR" "$work/$program.man" || fail "$program.1: no --$option"
        grep -qw -- "--$option" "$work/$program.bash" || fail "$program: bash knows no --$option"
        grep -q -- "--$option[]=\[}]" "$work/$program.zsh" || fail "$program: zsh knows no --$option"
        grep -q -- " -l $option " "$work/$program.fish" || fail "$program: fish knows no --$option"
        checked=$((checked + 1))
    done
    ! "$bin/$program" --help-as=nonsense 2>"$work/said" || fail "$program: --help-as=nonsense"
    ! "$bin/$program" --color=blue 2>"$work/said" || fail "$program: --color=blue"
    grep -qx "$program: found --color 'blue', wanted auto, always or never; see --help" "$work/said" ||
        fail "$(cat "$work/said")"
    # Every program complains in colour where that is wanted.
    ! "$bin/$program" --color=always --no-such 2>"$work/said" || fail "$program: --no-such"
    grep -q $'^\e\[1;31m'"$program"$':\e\[0m unknown option' "$work/said" || fail "$program: $(cat "$work/said")"
    ! "$bin/$program" --no-such 2>"$work/said" || fail "$program: --no-such"
    grep -q "^$program: unknown option --no-such; see --help" "$work/said" || fail "$program: $(cat "$work/said")"
    if need mandoc; then
        mandoc -Tlint -Wwarning "$work/$program.man" >"$work/lint" || fail "$program.1: $(cat "$work/lint")"
        mandoc -Tutf8 "$work/$program.man" | sed 's|.\x08||g' >"$work/page"
        for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' ENVIRONMENT 'SEE ALSO'; do
            grep -qx "$section" "$work/page" || fail "$program.1: no $section"
        done
        grep -q "$program.(1)\|$(tr a-z A-Z <<<"$program")(1)" "$work/page" || fail "$program.1: $(head -1 "$work/page")"
    fi
    bash -n "$work/$program.bash"
    if need zsh; then zsh -n "$work/$program.zsh"; fi
    if need fish; then fish -n "$work/$program.fish"; fi
done
[ $checked -ge 40 ] || fail "only $checked options"

# bash WORD...: completions of the last word
offers() {
    bash -c 'source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { :; }
        _ckpt_view ckpt-view; echo "${COMPREPLY[*]}"' - "$work/ckpt-view.bash" "$@"
}
if [ -e "$work/ckpt-view.bash" ]; then
    [ "$(offers ckpt-view --color a)" = "auto always" ] || fail "bash: --color a: $(offers ckpt-view --color a)"
    [ "$(offers ckpt-view --color = n)" = never ] || fail "bash: --color=n: $(offers ckpt-view --color = n)"
    offers ckpt-view --vers | grep -qx -- --version || fail "bash: --vers: $(offers ckpt-view --vers)"
    [ -z "$(offers ckpt-view --width 1)" ] || fail "bash offers something for a number"
    if need fish; then
        said=$(fish -c "source '$work/ckpt-view.fish'; complete -C 'ckpt-view --color al'")
        grep -q '^always' <<<"$said" || fail "fish: $said"
    fi
    # Colours: never into a pipe by itself, always when asked, and NO_COLOR is for auto.
    trace=$1/traces/cpu-2-threads/predicted.json
    plain=$("$bin/ckpt-view" "$trace" | grep -c $'\e' || true)
    forced=$(NO_COLOR=1 "$bin/ckpt-view" --color always "$trace" | grep -c $'\e' || true)
    never=$("$bin/ckpt-view" --color always --color=never "$trace" | grep -c $'\e' || true)
    [ "$plain" = 0 ] && [ "$never" = 0 ] && [ "$forced" -gt 5 ] || fail "colours: $plain $forced $never"
    if need script; then # a terminal
        seen=$(TERM=xterm script -qec "'$bin/ckpt-view' '$trace'" /dev/null | grep -c $'\e' || true)
        quiet=$(NO_COLOR=1 TERM=xterm script -qec "'$bin/ckpt-view' '$trace'" /dev/null | grep -c $'\e' || true)
        [ "$seen" -gt 5 ] && [ "$quiet" = 0 ] || fail "in a terminal: $seen, with NO_COLOR $quiet"
    fi
fi
echo "$checked options agree in help, man pages and completions"
