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
    v("widths", &PadAttrs::widths, "the numbers of elements added before and after, for each dimension");
    v("mode", &PadAttrs::mode,
      "the content of the border: constant, edge, reflect, symmetric or wrap, as in numpy.pad");
    v("value", &PadAttrs::value, "the constant of mode constant");
  }
};

struct TileAttrs {
  Shape repeats;
  template <class V>
  static void fields(V&& v) {
    v("repeats", &TileAttrs::repeats, "the number of copies along each dimension of the result");
  }
};

struct RepeatAttrs {
  int64_t count = 1;
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("count", &RepeatAttrs::count, "the number of times that each entry is repeated");
    v("axis", &RepeatAttrs::axis, "the dimension whose entries are repeated");
  }
};

struct RollAttrs {
  Shape shifts;
  Shape axes;
  template <class V>
  static void fields(V&& v) {
    v("shifts", &RollAttrs::shifts, "the number of places to shift towards the end, for each of the axes");
    v("axes", &RollAttrs::axes, "the dimension of each shift; shifts of the same dimension add up");
  }
};

struct TriangleAttrs {
  int64_t k = 0;
  template <class V>
  static void fields(V&& v) {
    v("k", &TriangleAttrs::k, "the diagonal: 0 is the main one, positive numbers are above it");
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
