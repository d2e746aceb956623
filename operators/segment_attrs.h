// Attributes of the operators on segments, for the records and for tests. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct ExpandAttrs {
  int64_t rows = 0;
  template <class V>
  static void fields(V&& v) {
    v("rows", &ExpandAttrs::rows, "the number of rows of the result, which is the last of the offsets");
  }
};

struct OffsetsAttrs {
  int64_t segments = 0;
  template <class V>
  static void fields(V&& v) {
    v("segments", &OffsetsAttrs::segments, "the number of segments");
  }
};

}  // namespace mx::detail
