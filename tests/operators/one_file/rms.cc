// A new reduction needs only this file.
#include <cmath>

#include "operators/elementwise_binary.h"
#include "operators/reduction_custom.h"

namespace mx {
namespace {

template <class T>
struct RootMeanSquare {
  T total = 0;
  void add(T x) { total += x * x; }
  void join(const RootMeanSquare& other) { total += other.total; }
  T result(int64_t count) const { return std::sqrt(total / static_cast<T>(count)); }
};

const Operator& record() {
  static const Operator op = reduction_operator<RootMeanSquare>(
      "rms", "The square root of the mean of squares.", [](const NDArray& x, const NDArray& y) {
        return x / (y * (static_cast<double>(x.numel()) / static_cast<double>(y.numel())));
      });
  return op;
}

}  // namespace

NDArray rms(const Arg& x, const Axes& axes, bool keep_dims) {
  return call(record(), ReduceAttrs{axes, keep_dims}, x);
}

namespace detail {
OperatorFamily family_rms() { return {&record()}; }
}  // namespace detail

}  // namespace mx
