#include "nn/dropout.h"

#include "engine/base/check.h"
#include "nn/detail/call_site.h"

namespace mx::nn {

Dropout::Dropout(double p, std::optional<Generator> generator) : p_(p), generator_(std::move(generator)) {
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[Dropout] expected a probability from 0 to 1, got ", p);
}

NDArray Dropout::forward(const NDArray& x) {
  return dropout(detail::at_call(x), p_, train_mode() && p_ > 0, generator_ ? &*generator_ : nullptr);
}

std::string Dropout::extra() const { return mx::detail::concat("p=", p_); }

}  // namespace mx::nn
