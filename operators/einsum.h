// einsum: products and sums of arrays by the names of their dimensions.
//
//   einsum("ij,jk->ik", a, b)       // a product of matrices
//   einsum("bij,bjk->bik", a, b)    // of each pair of them
//   einsum("ii", a)                 // a trace
//   einsum("...i,i->...", a, v)     // with every vector of a
//
// A letter names a dimension, the same letter the same size (1 broadcasts). Letters behind "->" are kept, in
// that order; the products are summed over the others. Without "->" the letters that come once are kept, in
// the order of their codes (capitals first). "..." stands for any number of dimensions, which broadcast.
// Spaces mean nothing. As numpy.einsum.
//
// Two operands that share a summed letter are multiplied by matmul; of more than two, the pair with the
// fewest products is multiplied first. So sums may be added in another order than in a plain loop. Types are
// promoted and results have that type: integers wrap, bool is "or of ands". Where nothing is computed
// ("ij->ji") the result is a view of the operand.
//
// Throws InvalidArgument for text that is none of this, and for shapes that do not fit it.
#pragma once

#include <concepts>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <utility>

#include "operators/operator.h"

namespace mx {

/// The text, and the place of the call, which errors name.
struct EinsumText {
  std::string text;
  std::source_location where;

  EinsumText(const char* t, std::source_location w = std::source_location::current()) : text(t), where(w) {}
  EinsumText(std::string t, std::source_location w = std::source_location::current())
      : text(std::move(t)), where(w) {}
};

NDArray einsum(const EinsumText& subscripts, std::span<const NDArray> operands);
NDArray einsum(const EinsumText& subscripts, std::initializer_list<NDArray> operands);
template <class... A>
requires(sizeof...(A) > 0 && (std::derived_from<A, NDArray> && ...)) NDArray
    einsum(const EinsumText& subscripts, const A&... operands) {
  const NDArray list[] = {operands...};
  return einsum(subscripts, std::span<const NDArray>(list));
}

}  // namespace mx
