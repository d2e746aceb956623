// Attributes of polygamma, for the record and for the kernels of GPUs. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct PolygammaAttrs {
  int64_t order = 0;
  template <class V>
  static void fields(V&& v) {
    v("order", &PolygammaAttrs::order, "the order of the derivative; 0: digamma itself");
  }
};

}  // namespace mx::detail
