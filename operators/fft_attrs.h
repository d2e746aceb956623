// Attributes of the Fourier transforms, for the records and for the kernels of GPUs. Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

struct FourierAttrs {
  int64_t axis = -1;
  bool inverse = false;
  double scale = 1;
  template <class V>
  static void fields(V&& v) {
    v("axis", &FourierAttrs::axis, "the dimension to transform, not counting that of complex pairs");
    v("inverse", &FourierAttrs::inverse, "true: the exponents have the other sign");
    v("scale", &FourierAttrs::scale, "the factor of the result");
  }
};

struct RealFourierAttrs {
  int64_t axis = -1;
  double scale = 1;
  template <class V>
  static void fields(V&& v) {
    v("axis", &RealFourierAttrs::axis, "the dimension to transform");
    v("scale", &RealFourierAttrs::scale, "the factor of the result");
  }
};

struct ToRealAttrs {
  int64_t axis = -1;
  int64_t n = 1;
  double scale = 1;
  template <class V>
  static void fields(V&& v) {
    v("axis", &ToRealAttrs::axis, "the dimension to transform, not counting that of complex pairs");
    v("n", &ToRealAttrs::n, "the size of that dimension in the result");
    v("scale", &ToRealAttrs::scale, "the factor of the result");
  }
};

}  // namespace mx::detail
