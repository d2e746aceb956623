#include "operators/linalg.h"

#include "operators/elementwise_binary.h"
#include "operators/linalg_records.h"
#include "operators/samples/table.h"
#include "operators/shape_ops.h"

namespace mx::detail {
namespace {

/// A well-conditioned matrix without symmetry.
NDArray square_matrix() { return array({{3.f, 0.5f, -1.f}, {0.25f, -2.f, 0.75f}, {1.f, 0.5f, 1.5f}}); }
NDArray square_stack() {
  const NDArray a = square_matrix();
  return stack({a, a.transpose() * 0.5f, a.slice(0, Slice{{}, {}, -1})});
}
/// Of rank 3, with singular values that differ.
NDArray tall_matrix() {
  return array({{2.f, 0.5f, -1.f}, {0.25f, -1.f, 0.75f}, {1.f, 0.5f, 1.5f}, {-0.5f, 1.25f, 0.25f}});
}
NDArray positive_matrix() { return array({{4.f, 1.f, -0.5f}, {1.f, 3.f, 0.75f}, {-0.5f, 0.75f, 2.f}}); }
/// Stacks of matrices with one element: there the symmetric gradient is that of the element.
NDArray numbers_as_matrices() { return array({2.25f, 0.5f}, {2, 1, 1}); }

std::vector<Sample> samples_solve() {
  const NDArray b = array({{1.f, -0.5f}, {2.f, 0.25f}, {-1.f, 1.5f}});
  return {{{square_matrix(), b}, {}, "(3, 3) and (3, 2)"},
          {{square_stack(), b.slice(1, Slice{0, 1})}, {}, "a stack with one right side"},
          {{square_matrix(), stack({b, b * 2})}, {}, "a matrix with a stack"}};
}

std::vector<Sample> samples_solve_triangular() {
  const NDArray b = array({{1.f, -0.5f}, {2.f, 0.25f}, {-1.f, 1.5f}}), a = square_matrix();
  return {{{a, b}, TriangularAttrs{}, "lower"},
          {{a, b}, TriangularAttrs{true, false}, "upper"},
          {{square_stack(), b}, TriangularAttrs{false, true}, "lower, diagonal of 1"},
          {{a, b}, TriangularAttrs{true, true}, "upper, diagonal of 1"}};
}

std::vector<Sample> samples_square() {
  return {{{square_matrix()}, {}, "(3, 3)"},
          {{square_stack()}, {}, "(3, 3, 3)"},
          {{numbers_as_matrices()}, {}, "(2, 1, 1)"}};
}

std::vector<Sample> samples_any() {
  return {{{square_matrix()}, {}, "(3, 3)"},
          {{tall_matrix()}, {}, "(4, 3)"},
          {{stack({tall_matrix(), tall_matrix() * 2 + 1}).swap_axes(1, 2)}, {}, "(2, 3, 4)"}};
}

std::vector<Sample> samples_cholesky() {
  const NDArray a = positive_matrix();
  return {{{numbers_as_matrices()}, SymmetricAttrs{}, "(2, 1, 1)"},
          {{a}, SymmetricAttrs{}, "(3, 3)", false},
          {{stack({a, a * 2})}, SymmetricAttrs{true}, "upper of (2, 3, 3)", false}};
}

std::vector<Sample> samples_qr() {
  return {{{tall_matrix()}, QrAttrs{}, "(4, 3)"},
          {{stack({tall_matrix(), tall_matrix() * 2 + 1}).swap_axes(1, 2)}, QrAttrs{}, "(2, 3, 4)"},
          {{square_matrix()}, QrAttrs{true}, "complete (3, 3)"},
          {{tall_matrix()}, QrAttrs{true}, "complete (4, 3)", false}};
}

std::vector<Sample> samples_svd() {
  return {{{tall_matrix()}, SvdAttrs{}, "(4, 3)"},
          {{stack({tall_matrix(), tall_matrix() * 2 + 1}).swap_axes(1, 2)}, SvdAttrs{}, "(2, 3, 4)"},
          {{square_matrix()}, SvdAttrs{true}, "full (3, 3)"},
          {{tall_matrix()}, SvdAttrs{true}, "full (4, 3)", false}};
}

std::vector<Sample> samples_pinv() {
  return {{{tall_matrix()}, RankAttrs{}, "(4, 3)"},
          {{stack({tall_matrix(), tall_matrix() * 2 + 1}).swap_axes(1, 2)}, RankAttrs{1e-6}, "(2, 3, 4)"}};
}

std::vector<Sample> samples_lstsq() {
  const NDArray b = array({{1.f, -0.5f}, {2.f, 0.25f}, {-1.f, 1.5f}, {0.5f, 1.f}});
  return {{{tall_matrix(), b}, RankAttrs{}, "(4, 3) and (4, 2)"},
          {{tall_matrix().transpose(), b.slice(0, Slice{0, 3})}, RankAttrs{1e-6}, "(3, 4) and (3, 2)"},
          {{array({{2.f}, {1.f}}), array({{1.f}, {3.f}})}, RankAttrs{}, "(2, 1) and (2, 1)"}};
}

}  // namespace

void add_linalg_samples(SampleTable& table) {
  table["linalg_solve"] = samples_solve;
  table["linalg_solve_triangular"] = samples_solve_triangular;
  table["linalg_inv"] = samples_square;
  table["linalg_det"] = samples_square;
  table["linalg_slogdet"] = samples_square;
  table["linalg_cofactor"] = samples_square;
  table["linalg_matrix_exp"] = samples_square;
  table["linalg_lu_factor"] = samples_any;
  table["linalg_cholesky"] = samples_cholesky;
  table["linalg_qr"] = samples_qr;
  table["linalg_svd"] = samples_svd;
  table["linalg_svdvals"] = samples_any;
  table["linalg_eigh"] = samples_cholesky;
  table["linalg_eig"] = samples_square;
  table["linalg_eigvals"] = samples_square;
  table["linalg_eigvalsh"] = samples_cholesky;
  table["linalg_pinv"] = samples_pinv;
  table["linalg_lstsq"] = samples_lstsq;
}

}  // namespace mx::detail
