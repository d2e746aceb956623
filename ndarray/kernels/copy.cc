#include "ndarray/kernels/copy.h"

#include <cstring>

#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/strided_loop.h"

namespace mx::kernels {
namespace {

template <class To, class From>
void copy_typed(const Tensor& target, const Tensor& source) {
  const LoopPlan<2> plan({&target, &source});
  const int64_t ts = plan.strides[0][0], ss = plan.strides[1][0];
  To* const to = target.as<To>();
  const From* const from = source.as<From>();
  parallel_runs<2>(plan, [&](const std::array<int64_t, 2>& offsets, int64_t n) {
    To* t = to + offsets[0];
    const From* s = from + offsets[1];
    if (ts == 1 && ss == 1) {
      if constexpr (std::is_same_v<To, From>) {
        std::memmove(t, s, static_cast<size_t>(n) * sizeof(To));
      } else {
        for (int64_t i = 0; i < n; ++i) t[i] = convert<To>(s[i]);
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) t[i * ts] = convert<To>(s[i * ss]);
  });
}

template <class Value>
void fill_any(const Tensor& target, Value value) {
  const LoopPlan<1> plan({&target});
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = convert<T>(value);
    T* const to = target.as<T>();
    parallel_runs<1>(plan, [&](const std::array<int64_t, 1>& offsets, int64_t n) {
      T* t = to + offsets[0];
      const int64_t step = plan.strides[0][0];
      if (step == 1) {
        std::fill_n(t, n, element);
      } else {
        for (int64_t i = 0; i < n; ++i) t[i * step] = element;
      }
    });
  });
}

}  // namespace

void copy(const Tensor& target, const Tensor& source) {
  visit(target.dtype, [&](auto to) {
    visit(source.dtype, [&](auto from) {
      copy_typed<typename decltype(to)::type, typename decltype(from)::type>(target, source);
    });
  });
}

void fill(const Tensor& target, double value) { fill_any(target, value); }
void fill(const Tensor& target, int64_t value) { fill_any(target, value); }

}  // namespace mx::kernels
