#!/usr/bin/env bash
# Installs into a folder of its own and builds a small user of the library twice: through find_package and through
# pkg-config. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work/user"
cmake --install "$bin/.." --prefix "$work/prefix" >/dev/null
pc=$(dirname "$(find "$work/prefix" -name ckpt.pc)")
version=$(PKG_CONFIG_PATH=$pc pkg-config --modversion ckpt)
for program in ckpt-plan ckpt-train ckpt-profile ckpt-view ckpt-graph; do
    "$work/prefix/bin/$program" --version | grep -qx "$program $version" || { echo "$program --version"; exit 1; }
done
cat >"$work/user/user.c" <<'C'
#include <stdio.h>

#include "core/units.h"
#include "planner/planner.h"

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
cat >"$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(ckpt REQUIRED)
find_package(ckpt REQUIRED) # by another part of the same project
add_executable(user user.c)
target_link_libraries(user PRIVATE ckpt::planner)
C
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$bin/../CMakeCache.txt") # there may be no other build program
flags=$(grep '^CKPT_SANITIZE:' "$bin/../CMakeCache.txt" | cut -d= -f2)
flags=${flags:+-fsanitize=$flags}
cmake -G "$generator" -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build "$work/user/build" >/dev/null
"$work/user/build/user"
# shellcheck disable=SC2046,SC2086
cc $flags -o "$work/user/by-pkg-config" "$work/user/user.c" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs ckpt)
"$work/user/by-pkg-config"
echo "installed, found by CMake and by pkg-config"
