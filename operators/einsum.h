// einsum: sums of products of arrays, written with a letter for each dimension.
//
//   einsum("ij,jk->ik", a, b)       // a product of matrices
//   einsum("bij,bjk->bik", a, b)    // of each pair of them
//   einsum("ii", a)                 // a trace
//   einsum("...i,i->...", a, v)     // with every vector of a
//
// A letter names a dimension. Dimensions with the same letter must have the same size; size 1 broadcasts. The
// letters after "->" are the dimensions of the result, in that order; the products are summed over all other
// letters. Without "->" the result has the letters that occur once, in the order of their codes (capitals
// first). "..." stands for any number of dimensions, which broadcast. Spaces are ignored. As numpy.einsum.
//
// Two operands that share a summed letter are multiplied by matmul. Of more than two operands, the pair with
// the fewest multiplications comes first. So sums may be added in another order than in a plain loop. Types
// are promoted, and the result has the promoted type; integers wrap, and for bool the result is the "or" of
// "and"s. If nothing is computed ("ij->ji"), the result is a view of the operand.
//
// Throws InvalidArgument if the text has another form, or if the shapes do not fit it.
#pragma once

#include <concepts>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <utility>

#include "operators/operator.h"

namespace mx {

/// The subscripts, and the source location of the call for error messages.
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
