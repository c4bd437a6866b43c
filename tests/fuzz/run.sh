#!/bin/sh
# Runs every fuzz target, two at a time: tests/fuzz/run.sh [MINUTES] [TARGET…]; ten minutes each by default.
# Needs a nightly toolchain, a C++ compiler and `cargo install cargo-fuzz`. Failing inputs are stored in
# tests/fuzz/artifacts; replay one with `cargo +nightly fuzz run TARGET FILE` in tests/.
set -eu
cd "$(dirname "$0")/.."
minutes=${1:-10}
[ $# -eq 0 ] || shift
cargo +nightly fuzz build
[ $# -gt 0 ] || set -- $(cargo +nightly fuzz list)
export seconds=$((minutes * 60))
# The router of actix never frees the names in a route, and SQLite defines one symbol twice.
export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0

# New inputs are stored beside the build; the committed corpus is only read, and stays small. To extend it:
# cargo +nightly fuzz cmin TARGET fuzz/target/corpus/TARGET, and copy a few dozen files.
printf '%s\n' "$@" | xargs -P 2 -I TARGET sh -eu -c '
    mkdir -p fuzz/target/corpus/TARGET fuzz/artifacts/TARGET
    words=fuzz/dictionaries/TARGET.dict
    [ -e "$words" ] && words="-dict=$words" || words=
    nice cargo +nightly fuzz run TARGET fuzz/target/corpus/TARGET fuzz/corpus/TARGET -- $words \
        -max_total_time="$seconds" -max_len=8192 -timeout=10 -detect_leaks=0 -rss_limit_mb=1024 -malloc_limit_mb=128 -print_final_stats=1 \
        >fuzz/target/TARGET.log 2>&1 || { tail -n 40 fuzz/target/TARGET.log; exit 255; }
    echo "TARGET: $(grep -o "#[0-9]*.DONE.*" fuzz/target/TARGET.log)"'
