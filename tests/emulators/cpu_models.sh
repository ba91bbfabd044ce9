#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks the choice of kernels on processors that this machine does not have. The script runs a probe under qemu's user
# mode, on one processor model after the other, as `PROBE EXPECTED`. EXPECTED is the name of the instruction set or unit
# that the library has to choose on the model; neon+none means neon without a unit. The exit status of the probe is 0 if
# the library chose EXPECTED and two small calls of attention have the right results. The script prints one TAP line for
# each model.
set -euo pipefail

readonly usage_error=2 not_available=98
readonly seconds_per_model=120

# The features that a program sees on the most important models:
#   Nehalem       no AVX and no XSAVE: XGETBV would trap
#   SandyBridge   AVX, but neither AVX2 nor FMA
#   Opteron_G5    AVX and FMA, no AVX2
#   Haswell,-fma  AVX2 without FMA
#   Haswell,-f16c AVX2 and FMA without F16C
#   max           all features that qemu emulates, up to AVX2
#   max,-xsave    AVX, AVX2 and FMA reported, but no OSXSAVE: XGETBV would trap
readonly x86_models=(
    "Nehalem scalar"
    "SandyBridge scalar"
    "Opteron_G5 scalar"
    "Haswell avx2"
    "Haswell,-fma scalar"
    "Haswell,-f16c scalar"
    "EPYC-Milan avx2"
    "max avx2"
    "max,-xsave scalar"
)
readonly arm_models=(
    "cortex-a53 neon+none"
    "cortex-a76 neon+dotprod"
    "neoverse-n1 neon+dotprod"
    "max neon+i8mm"
)

here=$(dirname "${BASH_SOURCE[0]}")
readonly here
count=0
failures=0

usage() {
    echo "usage: cpu_models.sh [--x86 PROBE] [--arm PROBE]"
    echo "  --x86 PROBE   x86-64 program to run on ${#x86_models[@]} x86 models"
    echo "  --arm PROBE   aarch64 program to run on ${#arm_models[@]} ARM models"
}

run_x86() { # MODEL PROBE ISA
    timeout "$seconds_per_model" "$x86_qemu" -cpu "$1" "$2" "$3"
}

run_arm() { # MODEL PROBE ISA
    timeout "$seconds_per_model" "$here/neon_machine" -cpu "$1" "$2" "$3"
}

# Prints the meaning of the exit status of a failed probe.
explain() {
    case $1 in
        124) echo "no end within $seconds_per_model s" ;;
        132) echo "trapped: illegal instruction" ;;
        139) echo "trapped: bad memory access" ;;
        *) echo "exit status $1" ;;
    esac
}

# Prints the TAP line of one model. If the probe failed, also prints the meaning of its exit status, and its whole
# output. The output has qemu's warnings about features that qemu lacks. Such a feature may be why the probe failed.
check_model() { # RUNNER PROBE MODEL ISA
    local status=0 output
    output=$("$1" "$3" "$2" "$4" 2>&1 </dev/null) || status=$?
    count=$((count + 1))
    if ((status == 0)); then
        echo "ok $count - $3 runs $4"
    else
        failures=$((failures + 1))
        echo "not ok $count - $3 runs $4"
        echo "# $(explain "$status")"
        printf '# %s\n' "${output//$'\n'/$'\n# '}"
    fi
}

check_models() { # RUNNER PROBE MODEL_AND_ISA...
    local runner=$1 probe=$2 model isa
    shift 2
    while read -r model isa; do
        check_model "$runner" "$probe" "$model" "$isa"
    done < <(printf '%s\n' "$@")
}

# A missing emulator must not look like a wrong choice of kernels.
bail_out() {
    echo "Bail out! not available: $1"
    exit "$not_available"
}

require_program() {
    if [[ ! -f $1 || ! -x $1 ]]; then
        echo "cpu_models.sh: not a program: $1" >&2
        exit "$usage_error"
    fi
}

main() {
    local x86_probe="" arm_probe=""
    while (($# > 1)); do
        case $1 in
            --x86) x86_probe=$2 ;;
            --arm) arm_probe=$2 ;;
            *) break ;;
        esac
        require_program "$2"
        shift 2
    done
    if (($# > 0)) || [[ -z $x86_probe$arm_probe ]]; then
        usage >&2
        exit "$usage_error"
    fi

    # The script reports traps itself, so core files are not needed.
    ulimit -c 0
    # The library must make the choice itself.
    unset ATTNKIT_ISA
    if [[ -n $x86_probe ]]; then
        x86_qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64) ||
            bail_out "no qemu-x86_64-static (package qemu-user-static)"
        check_models run_x86 "$x86_probe" "${x86_models[@]}"
    fi
    if [[ -n $arm_probe ]]; then
        command -v qemu-aarch64-static qemu-aarch64 >/dev/null ||
            bail_out "no qemu-aarch64-static (package qemu-user-static)"
        check_models run_arm "$arm_probe" "${arm_models[@]}"
    fi
    echo "1..$count"
    ((failures == 0))
}

main "$@"
