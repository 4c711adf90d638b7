#!/bin/bash
# ckpt-plan --pack from the outside: known problems packed without loss, no two buffers overlapping by an independent
# check, exit codes, and one line per complaint that says where.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# check_packing IN OUT: the same rows in the same order, nothing overlaps; prints the highest end. Columns of IN may stand in
# any order, so only OUT's are compared with each other and the number of rows with IN's.
check_packing() {
    awk -F, -v rows="$(grep -c '[^[:space:]]' "$1")" '
        NR == 1 { if ($0 != "id,lower,upper,size,offset") { print "header " $0; exit }; next }
        { id[NR] = $1; lower[NR] = $2; upper[NR] = $3; size[NR] = $4; offset[NR] = $5; end = $4 + $5
          if ($5 < 0) { print "negative offset of " $1; bad = 1 }
          if (end > highest) highest = end
          for (i = 2; i < NR; i++)
              if (lower[i] < $3 && $2 < upper[i] && offset[i] < end && $5 < offset[i] + size[i]) {
                  print "overlap of " id[i] " and " $1; bad = 1 } }
        END { if (NR != rows) print NR " rows for " rows; else if (!bad) printf "%d\n", highest }' "$2"
}

# packs FILE WANTED ARGS...: exit 0 and the highest end is at most WANTED
packs() {
    local file=$1 wanted=$2; shift 2
    "$plan" --pack "$file" -o out.csv "$@" >out.txt 2>err.txt || fail "--pack $file $*: exit $?: $(head -1 err.txt)"
    local highest; highest=$(check_packing "$file" out.csv)
    [[ $highest =~ ^[0-9]+$ ]] || { fail "--pack $file $*: $highest"; return; }
    [ "$highest" -le "$wanted" ] || fail "--pack $file $*: $highest, wanted $wanted"
    [ ! -s out.txt ] || fail "--pack $file -o: stdout says '$(head -1 out.txt)'"
    [ "$(wc -l <err.txt)" -eq 1 ] || fail "--pack $file $*: $(wc -l <err.txt) lines on stderr"
    grep -q "packed within" err.txt || fail "--pack $file $*: stderr says '$(cat err.txt)'"
}

for name in A B C D E F; do
    packs "$source_dir/tests/arenas/$name.1048576.csv" 1048576 --capacity 1048576
done
packs "$source_dir/tests/arenas/C.1048576.csv" 1039360
packs "$source_dir/tests/arenas/resnet50.csv" 1515472556

# The same bytes each time; standard output and input.
"$plan" --pack "$source_dir/tests/arenas/A.1048576.csv" >first.csv 2>/dev/null || fail "A to standard output"
"$plan" --pack - <"$source_dir/tests/arenas/A.1048576.csv" >second.csv 2>/dev/null || fail "A from standard input"
cmp -s first.csv second.csv || fail "the same problem was packed in two ways"

# Columns in any order and others beside them, spaces, CRLF, empty lines, huge times, no newline at the end.
printf ' size , note,upper ,lower, id\r\n\r\n4,x,9000000000000000000,0,a b\r\n 4 ,y, 10, 0 ,c\r\n4,z,20,10,d' >odd.csv
packs odd.csv 8
grep -q '^a b,0,9000000000000000000,4,' out.csv || fail "odd.csv: $(cat out.csv)"
printf 'id,lower,upper,size\n' >none.csv
packs none.csv 0

# Less room than the live set: exit code 1, and the best packing is written all the same.
printf 'id,lower,upper,size\na,0,2,3\nb,0,2,2\n' >two.csv
"$plan" --pack two.csv --capacity 4 >out.csv 2>err.txt
[ $? -eq 1 ] || fail "5 bytes in 4: exit $?"
grep -q 'need more than 4 bytes: 5 taken' err.txt || fail "5 bytes in 4: $(cat err.txt)"
[ "$(check_packing two.csv out.csv)" = 5 ] || fail "5 bytes in 4: no packing was written"
packs two.csv 5 --capacity 100%

# refuse WANTED-IN-STDERR TEXT: exit 2, one line
refuse() {
    printf "$2" >bad.csv
    timeout 60 "$plan" --pack bad.csv >out.csv 2>err.txt
    local got=$?
    [ $got -eq 2 ] || fail "'$2': exit $got"
    [ "$(wc -l <err.txt)" -eq 1 ] || fail "'$2': $(wc -l <err.txt) lines on stderr"
    grep -q -- "$1" err.txt || fail "'$2': stderr says '$(cat err.txt)', wanted $1"
    [ ! -s out.csv ] || fail "'$2': something was written"
}
head='id,lower,upper,size\n'
refuse "bad.csv:1:1: found nothing, wanted a first line" ''
refuse "bad.csv:1:1: found no column 'size'" 'id,lower,upper\n'
refuse "bad.csv:1:1: found no column 'id'" '0,1,2,3\n'
refuse "bad.csv:1:21: found column 'id' a second time" 'id,lower,upper,size,id\n'
refuse "bad.csv:2:3: found lower '-1', wanted a whole number" "${head}a,-1,2,3\n"
refuse "bad.csv:2:7: found size '-3', wanted" "${head}a,1,2,-3\n"
refuse "bad.csv:2:7: found size '1.5', wanted" "${head}a,1,2,1.5\n"
refuse "bad.csv:2:5: found upper '', wanted" "${head}a,1,,3\n"
refuse "bad.csv:2:7: found size 9223372036854775808, wanted less than 2^63" "${head}a,1,2,9223372036854775808\n"
refuse "bad.csv:3:5: found upper 2 at lower 2, wanted it above" "${head}a,1,2,3\nb,2,2,3\n"
refuse "bad.csv:3:5: found upper 1 at lower 2" "${head}a,1,2,3\nb,2,1,3\n"
refuse "bad.csv:4:1: found id 'a' as in line 2" "${head}a,1,2,3\nb,1,2,3\na,4,5,6\n"
refuse "bad.csv:2:1: found no id" "${head},1,2,3\n"
refuse "bad.csv:2:5: found 3 fields, wanted 4" "${head}a,1,2\n"
refuse "bad.csv:2:9: found 5 fields, wanted 4" "${head}a,1,2,3,4\n"
refuse "more than 2^63" "${head}a,1,2,9223372036854775807\nb,1,2,1\n"
# complain WANTED-IN-STDERR ARGS...: exit 2, one line
complain() {
    local wanted=$1; shift
    "$plan" "$@" >out.csv 2>err.txt
    [ $? -eq 2 ] || fail "ckpt-plan $*: not exit 2"
    [ "$(wc -l <err.txt)" -eq 1 ] || fail "ckpt-plan $*: $(wc -l <err.txt) lines on stderr"
    grep -q -- "$wanted" err.txt || fail "ckpt-plan $*: stderr says '$(cat err.txt)', wanted $wanted"
}
complain 'nowhere.csv' --pack nowhere.csv
complain 'wanted one file' --pack two.csv model.json
complain 'with --pack go' --pack two.csv --budget 5
complain 'for --pack' --capacity 5 model.json
complain 'could mean' --pack two.csv --capacity 6G
complain 'no/such/folder' --pack two.csv -o no/such/folder/out.csv

# 10^6 lines: read and packed, not well, but in the time of one pass
awk 'BEGIN { print "id,lower,upper,size"; for (i = 0; i < 1000000; i++) print i "," i "," i + 1 + i % 7 "," 64 * (1 + i % 5) }' >many.csv
timeout 120 "$plan" --pack many.csv --effort 0 >out.csv 2>err.txt
[ $? -le 1 ] || fail "10^6 lines: $(cat err.txt)"
[ "$(wc -l <out.csv)" -eq 1000001 ] || fail "10^6 lines: $(wc -l <out.csv) came out"

[ $failures -eq 0 ] && echo ok
exit $((failures != 0))
