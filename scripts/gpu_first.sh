#!/usr/bin/env bash
# What to do first when a machine with a GPU is at hand: packs the programs here, runs them there, and brings back a few
# small files.
#
#   scripts/gpu_first.sh pack [FILE]        packs what build/release has into FILE (default build/gpu_first.tar.xz, some
#                                           240 MB). With --without-nvidia, which leaves out NVIDIA's libraries, some 50 MB
#   scripts/gpu_first.sh run FILE [OUT]     on the other machine, in any folder: unpacks and runs, at most MX_GPU_SECONDS
#                                           (default 590); logs and summary.txt go to OUT (default ./gpu_first). The limits of
#                                           the steps add up to more than that. What no time is left for is left out, and the
#                                           same command goes on with it: what has ended in OUT is not run again.
#
# cuBLASLt, cuDNN and NVRTC, which are too large, are never packed: those of a PyTorch for python3 are found, or those in the
# folders that MX_CUDA_LIBRARIES names. Without cuBLASLt every product of matrices fails there.
set -euo pipefail

pack() {
  local caller=$PWD
  # shellcheck source=scripts/lib/common.sh
  . "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
  local out=build/gpu_first.tar.xz nvidia=1 folder=build/gpu_first program
  local programs=()
  for word in "$@"; do
    case "$word" in
      --without-nvidia) nvidia=0 ;;
      -*) die "unknown option '$word'; --help lists them" ;;
      *) out=$(cd "$caller" && realpath -m -- "$word") ;;
    esac
  done
  for program in mxrun tests/{cuda_facts_test,device_test,stream_suite_test,operators_gpu_test,comm_nccl_program} \
    examples/train_mnist \
    benchmarks/{stream_bench,cuda_calls_bench,engine_bench,gpu_bench}; do
    [ -x "build/release/$program" ] || die "build/release/$program is missing; scripts/test.sh builds it"
    programs+=(--program "build/release/$program")
  done
  scripts/gpu_bundle.sh --out "$folder" "${programs[@]}"
  cp -r examples/data/mnist "$folder/mnist"
  mkdir -p "$folder/benchmarks"
  cp benchmarks/{gpu,train}_bench_torch.py "$folder/benchmarks/"
  if [ -e build/release/modules/libmx_comm_nccl.so ]; then
    mkdir -p "$folder/modules"
    cp build/release/modules/libmx_comm_nccl.so "$folder/modules/"
    strip --strip-unneeded "$folder/modules/libmx_comm_nccl.so"
    # shellcheck disable=SC2016  # $ORIGIN is for the loader
    patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$folder/modules/libmx_comm_nccl.so"
    # What only the module needs; libnccl is large.
    while read -r soname path; do
      case "$soname" in
        libnccl* | libcudart*) [ "$nvidia" = 1 ] || continue ;;
        libhwy*) ;;
        *) continue ;;
      esac
      [ -e "$folder/lib/$soname" ] || cp -L -- "$path" "$folder/lib/$soname"
    done < <(ldd build/release/modules/libmx_comm_nccl.so | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }')
  fi
  if [ "$nvidia" = 0 ]; then rm -f "$folder"/lib/lib{cublas,cudnn,nvrtc,nccl,cudart}*; fi
  XZ_OPT=-1 tar -C "$(dirname "$folder")" -cJf "$out" "$(basename "$folder")"
  say "$(du -h "$out" | cut -f1) in $out"
}

# step NAME SECONDS COMMAND...: runs a command with a time limit, unless it has ended before or no time is left. A step that the
# end of all time cut off is run again in a further run.
step() {
  local name=$1 limit=$2 status=0 started=$SECONDS log=$out/$1.log left=$((${MX_GPU_SECONDS:-590} - SECONDS))
  shift 2
  if [ -e "$out/$name.ended" ]; then return 0; fi
  if [ "$left" -lt 5 ]; then
    echo "$name: no time left; run again to go on" | tee -a "$out/summary.txt"
    return 0
  fi
  if [ "$limit" -gt "$left" ]; then limit=$left; fi
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  printf '%-16s status %3d after %3d s: %d passed, %d failed, %d skipped\n' "$name" "$status" $((SECONDS - started)) \
    "$(grep -cE '^\[       OK' "$log" || true)" "$(grep -cE '^\[  FAILED  \].*ms\)$' "$log" || true)" \
    "$(grep -cE '^\[  SKIPPED \].*ms\)$' "$log" || true)" | tee -a "$out/summary.txt"
  if ! grep -hE '^\[  FAILED  \].*ms\)$|failed:|ERROR SUMMARY|passed$|FAILED$' "$log" | head -n 12 | sed 's/^/    /' |
    tee -a "$out/summary.txt"; then :; fi
  if [ "$status" = 124 ] && [ "$limit" = "$left" ]; then return 0; fi
  # A program whose tests were all skipped has shown nothing.
  if grep -qE '^\[  SKIPPED \].*ms\)$' "$log" && ! grep -qE '^\[       OK' "$log"; then return 0; fi
  touch "$out/$name.ended"
}

run() {
  local archive=$1 nvidia case
  if [ -z "${MX_GPU_FIRST_WITHOUT-}" ] && ! nvidia-smi -L; then
    echo "error: expected a GPU with NVIDIA's driver, got none: nvidia-smi finds none (MX_GPU_FIRST_WITHOUT=1 runs the" \
      "programs all the same)" >&2
    exit 1
  fi
  out=$(mkdir -p "${2-gpu_first}" && cd "${2-gpu_first}" && pwd)
  here=$(mktemp -d)
  trap 'rm -rf -- "$here"' EXIT
  tar -C "$here" -xJf "$archive"
  cd "$here"/*/
  if nvidia=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null); then
    for case in "$nvidia"/nvidia/*/lib; do export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}${LD_LIBRARY_PATH:+:}$case; done
  fi
  export MX_MODULE_PATH=$PWD/modules
  {
    nvidia-smi
    lscpu
    uname -r
  } >"$out/machine.log" 2>&1 || true
  # First what GPUs have not run: the operators, their errors, and training.
  step facts_lazy 60 bin/cuda_facts_test --gtest_color=no
  step arrays 40 bin/operators_gpu_test --gtest_color=no --gtest_filter='ArraysOnGpu*'
  step errors 40 bin/operators_gpu_test --gtest_color=no --gtest_filter='ErrorsOnGpu*'
  step operators 150 bin/operators_gpu_test --gtest_color=no --gtest_filter='OperatorsOnGpu*:RecurrentOnGpu*'
  grep -E '^[a-z0-9_]+ \| ' "$out/operators.log" >"$out/operators.txt" || true # the table
  step training 40 bin/operators_gpu_test --gtest_color=no --gtest_filter='TrainingOnGpu*'
  step fused 60 bin/operators_gpu_test --gtest_color=no --gtest_filter='FusedOnGpu*'
  MX_CUDNN_DEVICE_JSON=$out/cudnn_device.json step cudnn 90 bin/operators_gpu_test --gtest_color=no --gtest_filter='CudnnOnGpu*'
  MX_CUDNN=0 step cudnn_off 60 bin/operators_gpu_test --gtest_color=no --gtest_filter='CudnnOnGpu*'
  step train_mnist 60 bin/train_mnist --device gpu:0 --data mnist --epochs 2 --save "$out/mnist.safetensors" \
    --curve "$out/mnist_loss.svg"
  step train_mnist_cpu 60 bin/train_mnist --data mnist --epochs 2 --save "$here/mnist.safetensors" --curve "$here/mnist.svg"
  for case in 1 2 3 "2 fork" "2 leaves" "2 aborts" "2 timeout" "2 count" "3 type" "2 name" "3 barrier" "2 message"; do
    # shellcheck disable=SC2086  # the second word is an argument
    step "nccl_${case/ /_}" 40 bin/mxrun -n ${case%% *} --bind none bin/comm_nccl_program ${case#"${case%% *}"}
  done
  if command -v compute-sanitizer >/dev/null; then
    # Each array has a segment of its own, so that its bounds are seen.
    export MX_POOL_SEPARATE=1
    step memcheck_arrays 60 compute-sanitizer --tool memcheck bin/operators_gpu_test --gtest_color=no \
      --gtest_filter='ArraysOnGpu*:ErrorsOnGpu*:TrainingOnGpu*'
    for case in racecheck synccheck initcheck; do
      step "${case}_arrays" 60 compute-sanitizer --tool "$case" bin/operators_gpu_test --gtest_color=no \
        --gtest_filter='ArraysOnGpu*:ErrorsOnGpu*:TrainingOnGpu*'
    done
    step memcheck_streams 60 compute-sanitizer --tool memcheck bin/stream_suite_test --gtest_color=no --gtest_filter='Gpu/*'
    unset MX_POOL_SEPARATE
  fi
  # Then again what GPUs have passed.
  CUDA_MODULE_LOADING=EAGER step facts_eager 60 bin/cuda_facts_test --gtest_color=no
  CUDA_MODULE_LOADING=EAGER step device_eager 60 bin/device_test --gtest_color=no --gtest_filter='gpu*'
  step device 60 bin/device_test --gtest_color=no --gtest_filter='gpu*'
  CUDA_MODULE_LOADING=EAGER step streams_eager 60 bin/stream_suite_test --gtest_color=no --gtest_filter='Gpu/*'
  step streams 60 bin/stream_suite_test --gtest_color=no --gtest_filter='Gpu/*'
  step calls 30 bin/cuda_calls_bench
  step stream_bench 60 bin/stream_bench --device gpu:0
  step gpu_bench 200 bin/gpu_bench --rounds 3
  step gpu_bench_torch 200 python3 benchmarks/gpu_bench_torch.py --rounds 3 # says so if there is no PyTorch
  MX_CUDNN=0 step gpu_bench_own 60 bin/gpu_bench --rounds 3 --case conv_
  step scaling 150 bin/engine_bench --scaling --rounds 1 --ops 100000 --systems mx mx_replay tbb omp
  if command -v compute-sanitizer >/dev/null; then
    MX_POOL_SEPARATE=1 step memcheck_operators 500 compute-sanitizer --tool memcheck bin/operators_gpu_test --gtest_color=no \
      --gtest_filter='OperatorsOnGpu*'
  fi
  awk '/^\{/' "$out"/{calls,stream_bench,gpu_bench,gpu_bench_torch,gpu_bench_own,scaling}.log >"$out/benchmarks.jsonl" || true # some may be left out
  echo "logs and summary.txt are in $out"
}

case "${1-}" in
  pack) shift && pack "$@" ;;
  run) [ $# -ge 2 ] || { echo "error: run needs the file that pack has made" >&2 && exit 2; } && shift && run "$@" ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && [ "${1-}" = -h ] || [ "${1-}" = --help ] || exit 2 ;;
esac
