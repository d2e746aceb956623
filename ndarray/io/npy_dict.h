// The header of a .npy file: a Python dictionary. Only the subset of Python that NumPy writes is understood.
// Internal to npy.cc.
#pragma once

#include <string>
#include <string_view>

#include "ndarray/shape.h"

namespace mx::io::detail {

struct NpyDict {
  std::string descr;  // empty for a structured type, whose descr is a list
  bool structured = false;
  bool fortran_order = false;
  Shape shape;
};

/// Parses {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } with the keys in any order, each once,
/// and only white space after it. Throws FormatError; its message begins with `where`.
NpyDict parse_npy_dict(std::string_view text, const std::string& where);

}  // namespace mx::io::detail
