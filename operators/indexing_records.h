// The attributes of the indexing operators, and their gradients. Internal.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/attrs.h"
#include "operators/axis_list.h"
#include "operators/gradient.h"

namespace mx::detail {

struct TakeAttrs {
  int64_t axis = 0;
  std::string mode = "raise";
  template <class V>
  static void fields(V&& v) {
    v("axis", &TakeAttrs::axis, "the dimension that the indices point into");
    v("mode", &TakeAttrs::mode, "an index out of range: \"raise\" an error, \"clip\" it or \"wrap\" it");
  }
};

struct GatherAttrs {
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("axis", &GatherAttrs::axis, "the dimension that the indices point into");
  }
};

struct UpdateAttrs {
  int64_t axis = 0;
  std::string how = "set";
  template <class V>
  static void fields(V&& v) {
    v("axis", &UpdateAttrs::axis, "the dimension that the indices point into");
    v("how", &UpdateAttrs::how, "how an update meets what is there: set, add, mul, max, min");
  }
};

struct OneHotAttrs {
  int64_t classes = 0;
  DType dtype = f32;
  template <class V>
  static void fields(V&& v) {
    v("classes", &OneHotAttrs::classes, "the size of the new last dimension");
    v("dtype", &OneHotAttrs::dtype, "the type of the result");
  }
};

struct EmbeddingGradientAttrs {
  int64_t rows = 0;
  int64_t skip_row = -1;
  template <class V>
  static void fields(V&& v) {
    v("rows", &EmbeddingGradientAttrs::rows, "rows of the table");
    v("skip_row", &EmbeddingGradientAttrs::skip_row, "the row of the padding, which gets 0; -1: none");
  }
};

struct GatherNdAttrs {
  AxisList axes;
  int64_t position = -1;
  template <class V>
  static void fields(V&& v) {
    v("axes", &GatherNdAttrs::axes, "the dimensions that the arrays of indices point into, ascending");
    v("position", &GatherNdAttrs::position,
      "before which of the other dimensions those of the indices go; -1: as in NumPy");
  }
};

struct PutNdAttrs {
  AxisList axes;
  int64_t position = -1;
  std::string how = "set";
  template <class V>
  static void fields(V&& v) {
    v("axes", &PutNdAttrs::axes, "the dimensions that the arrays of indices point into, ascending");
    v("position", &PutNdAttrs::position,
      "before which of the other dimensions those of the indices go; -1: as in NumPy");
    v("how", &PutNdAttrs::how, "how a value meets what is there: set, add, mul, max, min");
  }
};

struct CountAttrs {
  int64_t count = 0;
  template <class V>
  static void fields(V&& v) {
    v("count", &CountAttrs::count, "how many elements are chosen");
  }
};

void gradient_take(GradientContext& g);
void gradient_gather(GradientContext& g);
void gradient_scatter(GradientContext& g);
void gradient_index_update(GradientContext& g);
void gradient_embedding(GradientContext& g);
void gradient_embedding_gradient(GradientContext& g);
void gradient_gather_nd(GradientContext& g);
void gradient_put_nd(GradientContext& g);
void gradient_masked_select(GradientContext& g);
void gradient_masked_scatter(GradientContext& g);

/// Return the values that the gradients of scatter and index_update, and that of put_nd, read. For `set` and
/// `add` these are only the indices.
GradientUses uses_of_update(const Attrs& attrs);
GradientUses uses_of_put_nd(const Attrs& attrs);

}  // namespace mx::detail
