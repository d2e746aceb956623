// Errors in the values of arrays: how a kernel notes one, and how it becomes an exception.
//
//   __global__ void k(..., KernelError* bad) { ... if (index >= n) note_error(bad, i, index); ... }
//
//   BadValues bad(args, [n](const KernelError& e) { return concat("expected less than ", n); });
//
//   launch(stream_of(args), ..., k, ..., bad.word());
//
//   bad.check();
//
// The kernel must go on with a value that touches no memory beyond its arrays.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/device/kernel_error.h"
#include "ndarray/cuda/kernel.cuh"
#include "ndarray/detail/describe.h"

namespace mx::cuda {

/// Notes a bad value, unless one with the same or a smaller place is noted already. So the order of the
/// threads does not matter.
__device__ inline void note_error(KernelError* word, int64_t place, int64_t value, int64_t other = 0) {
  for (bool done = false; !done;) {
    // Looked at again by threads that wait for the lock: of many bad values, most need it no more.
    if (load_shared(&word->found) != 0) {
      memory_fence();
      if (load_shared(&word->place) <= place) return;
    }
    if (!try_lock(&word->lock)) continue;
    if (load_shared(&word->found) == 0 || place < load_shared(&word->place)) {
      store_shared(&word->place, place);
      store_shared(&word->value, value);
      store_shared(&word->other, other);
      memory_fence();  // a thread that sees `found` sees a place that was noted
      store_shared(&word->found, int32_t{1});
    }
    unlock(&word->lock);
    done = true;
  }
}

/// As the host reads it: number_noted().
__device__ inline void note_error(KernelError* word, int64_t place, double value) {
  int64_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  note_error(word, place, bits);
}
inline double number_noted(const KernelError& error) {
  double value = 0;
  std::memcpy(&value, &error.value, sizeof value);
  return value;
}

/// The word of one call's kernels. On a GPU the error belongs to the call as if it had thrown it; on the host
/// check() throws it.
class BadValues {
 public:
  /// `text` makes the message from what was noted; it is called when `args` are gone.
  using Text = std::function<std::string(const KernelError&)>;

  BadValues(const KernelArgs& args, Text text) {
    if (auto* const errors = dynamic_cast<KernelErrors*>(args.stream)) {
      word_ =
          errors->watch([text = std::move(text),
                         inputs = std::vector<Tensor>(args.in.begin(), args.in.end())](const KernelError& e) {
            return std::make_exception_ptr(InvalidArgument(mx::detail::concat(
                text(e), " (inputs: ", mx::detail::describe(std::span<const Tensor>(inputs)), ')')));
          });
    } else {
      text_ = std::move(text);
    }
  }
  BadValues(const BadValues&) = delete;

  KernelError* word() { return word_; }
  void check() const {
    if (own_.found != 0) throw InvalidArgument(text_(own_));
  }

 private:
  KernelError own_;
  KernelError* word_ = &own_;
  Text text_;
};

}  // namespace mx::cuda
