// Attributes of sum_rows, for the record and for the kernels of GPUs. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct SumRowsAttrs {
  int64_t size = 0;
  int64_t skip_row = -1;
  template <class V>
  static void fields(V&& v) {
    v("size", &SumRowsAttrs::size, "the number of rows of the table");
    v("skip_row", &SumRowsAttrs::skip_row, "a row of the table that is left out; -1: none");
  }
};

}  // namespace mx::detail
