// The attributes of the operators of fill_ops.cc, and their gradients. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/attrs.h"
#include "operators/gradient.h"
#include "operators/shape_ops.h"

namespace mx::detail {

struct PadAttrs {
  std::vector<int64_t> widths;
  std::string mode = "constant";
  Scalar value;
  template <class V>
  static void fields(V&& v) {
    v("widths", &PadAttrs::widths, "elements before and after, for each dimension");
    v("mode", &PadAttrs::mode, "what is put there: constant, edge, reflect, symmetric, wrap");
    v("value", &PadAttrs::value, "the constant");
  }
};

struct TileAttrs {
  Shape repeats;
  template <class V>
  static void fields(V&& v) {
    v("repeats", &TileAttrs::repeats, "how often, along each dimension of the result");
  }
};

struct RepeatAttrs {
  int64_t count = 1;
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("count", &RepeatAttrs::count, "how often each entry comes");
    v("axis", &RepeatAttrs::axis, "the dimension");
  }
};

struct RollAttrs {
  Shape shifts;
  Shape axes;
  template <class V>
  static void fields(V&& v) {
    v("shifts", &RollAttrs::shifts, "by how much, towards the end");
    v("axes", &RollAttrs::axes, "along which dimension each shift is; several of one dimension add up");
  }
};

struct TriangleAttrs {
  int64_t k = 0;
  template <class V>
  static void fields(V&& v) {
    v("k", &TriangleAttrs::k, "the diagonal: positive above the main one");
  }
};

/// Converts an operator's attribute. Throws InvalidArgument, naming `op`, if the text is not a mode.
PadMode pad_mode(const std::string& text, const char* op);
/// Returns the index in [0, n) of the element that padding puts at position i, which may be outside of [0,
/// n). Precondition: the mode is not PadMode::constant.
int64_t pad_source(int64_t i, int64_t n, PadMode mode);
/// Returns a - n floor(a / n). Precondition: n > 0.
int64_t modulo(int64_t a, int64_t n);

void gradient_pad(GradientContext& g);
void gradient_tile(GradientContext& g);
void gradient_repeat(GradientContext& g);
void gradient_roll(GradientContext& g);
void gradient_tril(GradientContext& g);
void gradient_triu(GradientContext& g);

}  // namespace mx::detail
