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
    v("count", &KeyAttrs::count, "the number of random elements");
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
    v("dtype", &FillAttrs::dtype, "the type of the result");
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
    v("dtype", &IntegerAttrs::dtype, "the type of the result");
    v("low", &IntegerAttrs::low, "the lower limit, included");
    v("high", &IntegerAttrs::high, "the upper limit, not included");
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
    v("samples", &CategoricalAttrs::samples, "the number of samples per row of weights");
    v("logits", &CategoricalAttrs::logits, "true: the input holds logits, the logarithms of the weights");
  }
};

struct DropoutAttrs {
  double p = 0.5;
  template <class V>
  static void fields(V&& v) {
    v("p", &DropoutAttrs::p, "the probability of setting an element to 0");
  }
};

extern const Operator kRandomKey, kUniform, kNormal, kRandint, kBernoulli, kBernoulliOf, kExponential, kGamma,
    kPoisson, kBinomial, kPermutation, kCategorical, kDropout;

}  // namespace mx::detail
