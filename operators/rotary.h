// Rotary position embedding: rotates pairs of numbers of each row by angles that grow with the row's
// position, so that the product of a query and a key depends on the distance of their positions only.
//
//   q = rotary_embedding(q);                              // (.., length, width)
//   k = rotary_embedding(k, {.offset = cache.length()});   // rows behind those of a cache
//
// Pair i of a row at position p is rotated by p * theta^(-2 i / dims). Source: Su et al., "RoFormer: Enhanced
// Transformer with Rotary Position Embedding", 2021.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

struct RotaryAttrs {
  double theta = 10000;
  int64_t offset = 0;
  int64_t dims = 0;
  bool interleaved = false;
  bool inverse = false;
  template <class V>
  static void fields(V&& v) {
    v("theta", &RotaryAttrs::theta, "base of the frequencies");
    v("offset", &RotaryAttrs::offset, "position of the first row");
    v("dims", &RotaryAttrs::dims, "number of leading elements of a row that are rotated, even; 0: all");
    v("interleaved", &RotaryAttrs::interleaved,
      "pairs are neighbours, as in GPT-J; otherwise number i is paired with number i + dims / 2, as in "
      "LLaMA");
    v("inverse", &RotaryAttrs::inverse, "rotate in the opposite direction");
  }
};
using RotaryOptions = RotaryAttrs;

/// Returns x (.., length, width) with the pairs of each row rotated. Types: f32, f64, f16, bf16; angles are
/// computed in f64, f16 and bf16 in f32 and rounded once. Throws InvalidArgument for a rank below 2, an odd
/// number of dims, more dims than the width, and a theta that is not a positive finite number.
NDArray rotary_embedding(const Arg& x, const RotaryOptions& options = {});

}  // namespace mx
