// Attributes of the operators that sort, for the kernels of every device. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct SortAttrs {
  int64_t axis = -1;
  bool descending = false;
  template <class V>
  static void fields(V&& v) {
    v("axis", &SortAttrs::axis, "the dimension to sort along");
    v("descending", &SortAttrs::descending, "true: the largest element first");
  }
};

struct TopKAttrs {
  int64_t k = 1;
  int64_t axis = -1;
  bool largest = true;
  template <class V>
  static void fields(V&& v) {
    v("k", &TopKAttrs::k, "the number of elements to return");
    v("axis", &TopKAttrs::axis, "the dimension to search along");
    v("largest", &TopKAttrs::largest, "true: the largest elements; false: the smallest");
  }
};

struct PartitionAttrs {
  int64_t kth = 0;
  int64_t axis = -1;
  template <class V>
  static void fields(V&& v) {
    v("kth", &PartitionAttrs::kth, "the place whose element divides the others; from the end if negative");
    v("axis", &PartitionAttrs::axis, "the dimension that is divided");
  }
};

struct SearchAttrs {
  bool behind = false;
  template <class V>
  static void fields(V&& v) {
    v("behind", &SearchAttrs::behind, "true: after equal elements; false: before them");
  }
};

}  // namespace mx::detail
