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
    v("axis", &TakeAttrs::axis, "the dimension of x that the indices refer to");
    v("mode", &TakeAttrs::mode,
      "the treatment of an index out of range: \"raise\" an error, \"clip\" it to the nearest valid one, or "
      "\"wrap\" it modulo the size");
  }
};

struct GatherAttrs {
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("axis", &GatherAttrs::axis, "the dimension of x that the indices refer to");
  }
};

struct UpdateAttrs {
  int64_t axis = 0;
  std::string how = "set";
  template <class V>
  static void fields(V&& v) {
    v("axis", &UpdateAttrs::axis, "the dimension of x that the indices refer to");
    v("how", &UpdateAttrs::how,
      "how an update is combined with the element of x: set (replaces it), add, mul, max or min");
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

struct EmbeddingAttrs {
  int64_t padding = -1;
  bool sparse = false;
  bool from_end = true;
  template <class V>
  static void fields(V&& v) {
    v("padding", &EmbeddingAttrs::padding, "the row that stands for padding, whose gradient is 0; -1: none");
    v("sparse", &EmbeddingAttrs::sparse, "the gradient of the table holds only the rows that were taken");
    v("from_end", &EmbeddingAttrs::from_end,
      "negative indices count from the end; otherwise they are errors");
  }
};

struct EmbeddingGradientAttrs {
  int64_t rows = 0;
  int64_t skip_row = -1;
  template <class V>
  static void fields(V&& v) {
    v("rows", &EmbeddingGradientAttrs::rows, "the number of rows of the table");
    v("skip_row", &EmbeddingGradientAttrs::skip_row,
      "the row that stands for padding, whose gradient is 0; -1: none");
  }
};

struct GatherNdAttrs {
  AxisList axes;
  int64_t position = -1;
  template <class V>
  static void fields(V&& v) {
    v("axes", &GatherNdAttrs::axes, "the dimensions of x that the index arrays refer to, ascending");
    v("position", &GatherNdAttrs::position,
      "the position of the index dimensions among the other dimensions of x; -1: as in NumPy");
  }
};

struct PutNdAttrs {
  AxisList axes;
  int64_t position = -1;
  std::string how = "set";
  template <class V>
  static void fields(V&& v) {
    v("axes", &PutNdAttrs::axes, "the dimensions of x that the index arrays refer to, ascending");
    v("position", &PutNdAttrs::position,
      "the position of the index dimensions among the other dimensions of x; -1: as in NumPy");
    v("how", &PutNdAttrs::how,
      "how a value is combined with the element of x: set (replaces it), add, mul, max or min");
  }
};

struct CountAttrs {
  int64_t count = 0;
  template <class V>
  static void fields(V&& v) {
    v("count", &CountAttrs::count, "the number of elements that are not zero");
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
