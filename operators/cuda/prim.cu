#include "operators/cuda/prim.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "ndarray/cuda/kernel.cuh"
#include "operators/scratch.h"

namespace mx::cuda {

void sort_pairs(const KernelArgs& args, const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                int64_t* sorted_values, int64_t n, int first_bit, int last_bit) {
  if (n == 0) return;
  size_t bytes = 0;
  MX_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values, sorted_values, n,
                                          first_bit, last_bit, stream_of(args)));
  const Scratch memory(args, bytes);
  MX_CUDA(cub::DeviceRadixSort::SortPairs(memory.data(), bytes, keys, sorted_keys, values, sorted_values, n,
                                          first_bit, last_bit, stream_of(args)));
}

void running_sums(const KernelArgs& args, const int64_t* x, int64_t* sums, int64_t n) {
  if (n == 0) return;
  size_t bytes = 0;
  MX_CUDA(cub::DeviceScan::InclusiveSum(nullptr, bytes, x, sums, n, stream_of(args)));
  const Scratch memory(args, bytes);
  MX_CUDA(cub::DeviceScan::InclusiveSum(memory.data(), bytes, x, sums, n, stream_of(args)));
}

}  // namespace mx::cuda
