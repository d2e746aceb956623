// A text as numbers of its characters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::examples {

/// The characters of a text, numbered in the order of their bytes.
class Alphabet {
 public:
  explicit Alphabet(const std::string& text);
  int64_t size() const { return static_cast<int64_t>(letters_.size()); }
  /// Throws InvalidArgument for a character that the text of the constructor does not have.
  std::vector<int64_t> numbers(const std::string& text) const;
  char letter(int64_t number) const { return letters_[static_cast<size_t>(number)]; }

 private:
  std::string letters_;
  std::array<int64_t, 256> number_of_{};
};

/// Returns the content of a file. Throws FileError if it cannot be read.
std::string read_text(const std::string& path);

}  // namespace mx::examples
