#!/usr/bin/env bash
# labels: cli; long under sanitizers
# Installs into a folder of its own, moves that, and builds small users of the library: through find_package and through
# pkg-config. Injection finds its library before the move and after it. Arguments: source folder, folder of the programs,
# work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work/user"
cmake --install "$bin/.." --prefix "$work/prefix" >/dev/null
# inject PREFIX: its ckpt-profile records a program; a build without CUPTI says that it is one
inject() {
    local status=0
    rm -f "$work/t.json"
    CKPT_CUPTI=$bin/libcupti_double.so "$1/bin/ckpt-profile" -o "$work/t.json" -- "$bin/victim" init step \
        >/dev/null 2>"$work/said" || status=$?
    if [ -e "$bin/libcupti_double.so" ]; then
        [ $status = 0 ] && grep -q '"format": "ckpt-trace/1"' "$work/t.json"
    else
        [ $status = 3 ] && grep -q "this build has no CUPTI" "$work/said"
    fi || { echo "$1: injection: exit $status: $(cat "$work/said")"; exit 1; }
}
inject "$work/prefix"
mv "$work/prefix" "$work/moved"
inject "$work/moved"
prefix=$work/moved
pc=$(dirname "$(find "$prefix" -name ckpt.pc)")
version=$(PKG_CONFIG_PATH=$pc pkg-config --modversion ckpt)
for program in $(cd "$bin" && ls | grep -x 'ckpt-[a-z]*'); do
    [ -n "$(find "$prefix/share/man/man1" -name "$program.1*")" ] || { echo "no man page of $program"; exit 1; }
    "$prefix/bin/$program" --version | grep -qx "$program $version" || { echo "$program --version"; exit 1; }
done
cat >"$work/user/user.c" <<'C'
#include <stdio.h>

#include "core/base/units.h"
#include "planner/api/planner.h"

int main(void)
{
    char text[CKPT_UNITS_TEXT];
    ckpt_bytes bytes = 0;
    if (ckpt_bytes_parse("6GB", 0, &bytes, NULL) != CKPT_OK || ckpt_strategy_find("keep-all") == NULL) {
        return 1;
    }
    puts(ckpt_bytes_show(bytes, text));
    return 0;
}
C
cat >"$work/user/records.c" <<'C'
#include <stdio.h>

#include "cupti/recorder.h"
#include "imports/import.h"

int main(int argc, char **argv)
{
    ckpt_arena arena;
    ckpt_trace *trace = NULL;
    ckpt_recorder *recorder = NULL;
    const ckpt_recorder_options options = {.library = "/no/such/libcupti.so"};
    ckpt_err err = {0};
    ckpt_arena_init(&arena);
    const ckpt_code code = argc == 2 ? ckpt_import_snapshot(argv[1], NULL, &arena, &trace, &err) : CKPT_BAD_INPUT;
    if (code == CKPT_OK) {
        printf("%d events\n", trace->event_count);
    } else {
        fprintf(stderr, "%s\n", err.msg);
    }
    ckpt_arena_fini(&arena);
    return code == CKPT_OK && ckpt_recorder_open(&options, &recorder, &err) == CKPT_DEVICE ? 0 : 1;
}
C
cat >"$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(ckpt REQUIRED)
find_package(ckpt REQUIRED) # by another part of the same project
add_executable(user user.c)
target_link_libraries(user PRIVATE ckpt::planner)
add_executable(records records.c)
target_link_libraries(records PRIVATE ckpt::imports ckpt::cupti)
C
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$bin/../CMakeCache.txt") # there may be no other build program
flags=$(grep '^CKPT_SANITIZE:' "$bin/../CMakeCache.txt" | cut -d= -f2)
flags=${flags:+-fsanitize=$flags}
cmake -G "$generator" -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build "$work/user/build" >/dev/null
"$work/user/build/user"
"$work/user/build/records" "$source/tests/imports/snapshot_training.pickle"
# shellcheck disable=SC2046,SC2086
cc $flags -o "$work/user/by-pkg-config" "$work/user/user.c" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs ckpt)
"$work/user/by-pkg-config"
echo "installed, found by CMake and by pkg-config"
