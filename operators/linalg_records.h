// The attributes of the operators of linear algebra, and operators that only gradients call. Internal.
#pragma once

#include "operators/operator.h"

namespace mx::detail {

struct TriangularAttrs {
  bool upper = false;
  bool unitriangular = false;
  template <class V>
  static void fields(V&& v) {
    v("upper", &TriangularAttrs::upper, "true: a is an upper triangle; false: a lower one");
    v("unitriangular", &TriangularAttrs::unitriangular, "true: the diagonal of a is taken as 1");
  }
};

struct SymmetricAttrs {
  bool upper = false;
  template <class V>
  static void fields(V&& v) {
    v("upper", &SymmetricAttrs::upper, "true: the upper triangle; false: the lower one");
  }
};

struct QrAttrs {
  bool complete = false;
  template <class V>
  static void fields(V&& v) {
    v("complete", &QrAttrs::complete, "true: q is square; false: it has min(m, n) columns");
  }
};

struct SvdAttrs {
  bool full_matrices = false;
  template <class V>
  static void fields(V&& v) {
    v("full_matrices", &SvdAttrs::full_matrices,
      "true: u and vh are square; false: they have min(m, n) columns and rows");
  }
};

struct RankAttrs {
  double rtol = -1;
  template <class V>
  static void fields(V&& v) {
    v("rtol", &RankAttrs::rtol,
      "singular values up to this multiple of the largest one count as 0; negative: max(m, n) times the "
      "type's epsilon");
  }
};

/// The matrix of cofactors: det(a) times the transposed inverse, but defined for every matrix.
NDArray cofactor(const Arg& a);

/// Throws InvalidArgument unless operand i is a stack of matrices of f32 or f64, square if so required.
void check_matrices(const InferContext& c, size_t i, bool square);

}  // namespace mx::detail
