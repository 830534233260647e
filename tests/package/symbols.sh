#!/usr/bin/env bash
# symbols.sh LIBFLYMASK LIBRUNTIME LIBFLYMASK.a LIBRUNTIME.a: the libraries export fly_ names alone, the runtime needs no LLVM, and
# nothing in them prints, exits or aborts. (The sanitizers' own names do not count.)
set -eu
failed=0
fail() { echo "$*"; failed=1; }

for library in "$1" "$2"; do
  exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//')
  [ "$(echo "$exported" | grep -c '^fly_')" -ge 20 ] || fail "$library exports too little: $exported"
  odd=$(echo "$exported" | grep -v '^fly_' | grep -Ev '^_?_?(asan|ubsan|tsan|sanitizer|lsan|odr_asan|start_|stop_|dl_)' || true)
  [ -z "$odd" ] || fail "$library exports more than fly_ names: $odd"
done

# What prints (also as glibc's fortified names), ends the process, or is needed to print.
banned='(__)?(v?[fd]?printf|v?warnx?|v?errx?)(_chk)?|puts|fputs|putchar|putc|fputc|_IO_putc|fwrite|perror|psignal|psiginfo|error'
banned+='|v?syslog|(__)?v?syslog_chk|stdout|stderr|exit|_exit|_Exit|quick_exit|at_quick_exit|abort|raise|__assert|__assert_fail'
banned+='|__assert_perror_fail|LLVMDump.*|LLVMPrintModuleToFile'

for archive in "$3" "$4"; do
  odd=$(nm --defined-only --extern-only "$archive" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -v '^fly_\|^flyi_' |
    grep -Ev '^_?_?(asan|ubsan|tsan|sanitizer|lsan|odr_asan|start_|stop_)' || true)
  [ -z "$odd" ] || fail "$archive defines other names: $odd"
  called=$(nm "$archive" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u | grep -E "^($banned)(_unlocked)?$" || true)
  [ -z "$called" ] || fail "$archive calls: $called"
done

readelf -d "$1" | grep -q 'NEEDED.*LLVM' || fail "$1 does not link LLVM: is this the right file?"
readelf -d "$2" | grep -q 'NEEDED.*LLVM' && fail "$2 links LLVM"
nm -D --undefined-only "$2" | grep -q ' LLVM' && fail "$2 calls LLVM"
exit $failed
