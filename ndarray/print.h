// format: an array as text, as NumPy's str() writes it.
//
// The text is that of NumPy 2.4 with `floatmode="maxprec"` and `sign="-"`, to the character:
//   - Numbers are in columns of one width.
//   - A number has the fewest digits that distinguish it from its neighbours of the same type, but at most
//     `precision` after the point.
//   - The whole array is in scientific notation if its largest or smallest numbers require it.
//   - Long dimensions have "..." in the middle, and matrices have a blank line between them.
//   - An array of rank 0 is written like a scalar, with all its digits.
// bf16, which NumPy does not have, is written as the f32 of the same value.
//
// Source: the text of NumPy's documentation of array2string and set_printoptions, and its output
// (tests/ndarray/golden).
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/tensor.h"

namespace mx {

struct PrintOptions {
  int precision = 8;         ///< digits after the point, at most
  int64_t threshold = 1000;  ///< more elements than this are summarised
  int64_t edge_items = 3;    ///< elements at each end of a dimension in a summary
  int64_t line_width = 75;   ///< columns; longer rows are wrapped
  bool suppress = false;     ///< no scientific notation because of small numbers
};

/// Sets the options of `std::cout << a` and to_string(a) for the whole process, as numpy.set_printoptions
/// does. Throws InvalidArgument as format() does. Any thread may call it.
void set_print_options(const PrintOptions& options);
PrintOptions print_options();

/// Sets the options of the process while the scope lives: PrintOptionsScope scope({.precision = 3}).
class PrintOptionsScope {
 public:
  explicit PrintOptionsScope(const PrintOptions& options) : before_(print_options()) {
    set_print_options(options);
  }
  ~PrintOptionsScope() { set_print_options(before_); }
  PrintOptionsScope(const PrintOptionsScope&) = delete;
  PrintOptionsScope& operator=(const PrintOptionsScope&) = delete;

 private:
  PrintOptions before_;
};

/// Returns the text, without a newline at its end. Reads the elements on the calling thread. Precondition:
/// they are in host memory, and no other thread writes them meanwhile. Throws InvalidArgument for a negative
/// precision, threshold or line width, for fewer than one edge item, and for a precision above 100.
std::string format(const Tensor& tensor, const PrintOptions& options = {});

}  // namespace mx
