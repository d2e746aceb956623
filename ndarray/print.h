// format: an array as text, as NumPy's str() writes it.
//
// The text is that of NumPy 2.4 with `floatmode="maxprec"` and `sign="-"`, to the character: numbers of one
// width in columns, the fewest digits that tell a number apart from its neighbours of the same type but no
// more than `precision` after the point, scientific notation for the whole array when its largest or smallest
// numbers ask for it, "..." in the middle of long dimensions, a blank line between matrices. bf16 is written
// as the f32 of the same value. An array without dimensions is written like a scalar, with all its digits.
// Source: the text of NumPy's documentation of array2string and set_printoptions, and its output
// (tests/ndarray/golden).
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/scalar.h"
#include "ndarray/tensor.h"

namespace mx {

struct PrintOptions {
  IntArg precision = 8;     ///< digits after the point, at most
  IntArg threshold = 1000;  ///< more elements than this are summarised
  IntArg edge_items = 3;    ///< elements at each end of a dimension in a summary
  IntArg line_width = 75;   ///< columns after which a row goes on in the next line
  bool suppress = false;    ///< no scientific notation for the sake of small numbers
};

/// `std::cout << std::setprecision(3) << a` ignores the precision of the stream: set PrintOptions::precision.
///
/// What `std::cout << a` and to_string(a) use, in the whole process, from now on; as numpy.set_printoptions.
/// Throws InvalidArgument as format() does. Any thread may call.
void set_print_options(const PrintOptions& options);
PrintOptions print_options();

/// Other options while it lives: PrintOptionsScope scope({.precision = 3}).
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

/// The text, without a newline at its end. Reads the elements on the calling thread; they must be in the
/// host's memory and nobody may be writing them. Throws InvalidArgument for a negative precision, threshold
/// or line width, for fewer than one edge item, and for a precision beyond 100.
std::string format(const Tensor& tensor, const PrintOptions& options = {});

}  // namespace mx
