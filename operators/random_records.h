// The records of the random operators, for generator.cc. Internal.
//
// random_key takes a key from a generator's state; all other operators are functions of a key. So an
// operation that fails does not poison its generator, and operations of one generator need not wait for each
// other.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx::detail {

struct KeyAttrs {
  int64_t count = 0;
  template <class V>
  static void fields(V&& v) {
    v("count", &KeyAttrs::count, "how many elements");
  }
};

struct FillAttrs {
  Shape shape;
  DType dtype = f32;
  double a = 0;
  double b = 1;
  template <class V>
  static void fields(V&& v) {
    v("shape", &FillAttrs::shape, "the shape of the result");
    v("dtype", &FillAttrs::dtype, "its type");
    v("a", &FillAttrs::a, "the distribution's first parameter");
    v("b", &FillAttrs::b, "the distribution's second parameter");
  }
};

struct IntegerAttrs {
  Shape shape;
  DType dtype = i64;
  int64_t low = 0;
  int64_t high = 1;
  template <class V>
  static void fields(V&& v) {
    v("shape", &IntegerAttrs::shape, "the shape of the result");
    v("dtype", &IntegerAttrs::dtype, "its type");
    v("low", &IntegerAttrs::low, "the smallest number");
    v("high", &IntegerAttrs::high, "one more than the largest");
  }
};

struct TypeAttrs {
  DType dtype = f32;
  template <class V>
  static void fields(V&& v) {
    v("dtype", &TypeAttrs::dtype, "the type of the result");
  }
};

struct CategoricalAttrs {
  int64_t samples = 1;
  bool logits = false;
  template <class V>
  static void fields(V&& v) {
    v("samples", &CategoricalAttrs::samples, "how many per row");
    v("logits", &CategoricalAttrs::logits, "the weights are the exponentials of what is given");
  }
};

struct DropoutAttrs {
  double p = 0.5;
  template <class V>
  static void fields(V&& v) {
    v("p", &DropoutAttrs::p, "the probability of an element to become 0");
  }
};

extern const Operator kRandomKey, kUniform, kNormal, kRandint, kBernoulli, kBernoulliOf, kExponential, kGamma,
    kPoisson, kBinomial, kPermutation, kCategorical, kDropout;

}  // namespace mx::detail
