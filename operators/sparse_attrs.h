// Attributes of sparse products, for the records and for the kernels of GPUs. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct CsrAttrs {
  bool transposed = false;
  int64_t width = 0;
  template <class V>
  static void fields(V&& v) {
    v("transposed", &CsrAttrs::transposed, "true: the product of the transposed matrix");
    v("width", &CsrAttrs::width, "the number of columns of the matrix, if it is transposed");
  }
};

}  // namespace mx::detail
