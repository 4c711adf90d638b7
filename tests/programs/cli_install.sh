#!/usr/bin/env bash
# labels: cli; long under sanitizers
# Installs into a new folder, moves that, and builds small users of the library: through find_package and through
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
# The solver is found in the installed tree; without its plug-in ckpt-plan still plans, and says so where it was asked for.
plan() { "$prefix/bin/ckpt-plan" --effort "$1" --strategy "$2" --budget 100% "$source/models/mlp.json" 2>&1 >/dev/null; }
[ -z "$(plan 0 ilp)" ] || { echo "no solver in $prefix: $(plan 0 ilp)"; exit 1; }
plugin=$(find "$prefix" -name libckpt_glpk.so)
mv "$plugin" "$work/plugin"
for asked in "0 ilp" "2 auto"; do
    # shellcheck disable=SC2086
    said=$(plan $asked || echo "exit $?")
    grep -q '^ckpt-plan: note: planning without integer programs: .*libckpt_glpk.so' <<<"$said" && [ "$(wc -l <<<"$said")" = 1 ] ||
        { echo "$asked without the plug-in: $said"; exit 1; }
done
[ -z "$(plan 1 auto)$(plan 2 sqrt)" ] || { echo "says something: $(plan 1 auto)$(plan 2 sqrt)"; exit 1; }
mv "$work/plugin" "$plugin"
# Installed for building: one header, one library, and the files that find it.
found=$(cd "$prefix" && find . -name '*.h' -o -name '*.a' -o -name 'libckpt.*' -o -name '*.cmake' -o -name '*.pc' | sed 's|.*/||' | LC_ALL=C sort |
    sed 's/ckptTargets-.*/ckptTargets-BUILD.cmake/' | tr '\n' ' ')
[ "$found" = "ckpt.h ckpt.pc ckptConfig.cmake ckptConfigVersion.cmake ckptTargets-BUILD.cmake ckptTargets.cmake libckpt.so \
libckpt.so.${version%%.*} libckpt.so.$version " ] || { echo "installed: $found"; exit 1; }

# The examples, each built against the installed files alone.
cp "$source"/examples/plan.c "$source"/examples/plan.cpp "$source"/examples/plan.py "$work/user"
cat >"$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C CXX)
find_package(ckpt REQUIRED COMPONENTS plan)
find_package(ckpt REQUIRED) # by another part of the same project
add_executable(in-c plan.c)
target_link_libraries(in-c PRIVATE ckpt::plan)
add_executable(in-cpp plan.cpp)
target_link_libraries(in-cpp PRIVATE ckpt::ckpt)
C
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$bin/../CMakeCache.txt") # there may be no other build program
flags=$(grep '^CKPT_SANITIZE:' "$bin/../CMakeCache.txt" | cut -d= -f2)
flags=${flags:+-fsanitize=$flags}
cmake -G "$generator" -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$flags" \
    -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$work/user/build" >/dev/null
! grep -i 'openmp\|dnnl\|cairo\|graphviz\|jansson' "$work/user/build/CMakeCache.txt" || { echo "looked for too much"; exit 1; }
# shellcheck disable=SC2046,SC2086
cc $flags -o "$work/user/by-pkg-config" "$work/user/plan.c" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs ckpt)
export LD_LIBRARY_PATH=${pc%/pkgconfig}
wanted="peak 6000000 of 9000000 bytes, time +16.7 %"
for example in build/in-c build/in-cpp by-pkg-config; do
    [ "$("$work/user/$example" | head -n 1)" = "$wanted" ] || { echo "$example: $("$work/user/$example")"; exit 1; }
done
if [ -z "$flags" ]; then # else Python lacks the sanitizer's library
    [ "$(python3 "$work/user/plan.py")" = "$wanted" ] || { echo "plan.py: $(python3 "$work/user/plan.py")"; exit 1; }
fi
echo "installed, found by CMake and by pkg-config; C, C++ and Python plan with it"
