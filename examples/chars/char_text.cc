#include "examples/chars/char_text.h"

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::examples {

Alphabet::Alphabet(const std::string& text) {
  number_of_.fill(-1);
  const std::set<unsigned char> used(text.begin(), text.end());
  for (const unsigned char letter : used) {
    number_of_[letter] = static_cast<int64_t>(letters_.size());
    letters_ += static_cast<char>(letter);
  }
}

std::vector<int64_t> Alphabet::numbers(const std::string& text) const {
  std::vector<int64_t> list;
  for (const char letter : text) {
    const int64_t number = number_of_[static_cast<unsigned char>(letter)];
    MX_CHECK(number >= 0, InvalidArgument, "[Alphabet] expected characters of the training text, got \"",
             letter, '"');
    list.push_back(number);
  }
  return list;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw FileError("read", path, errno, "");
  return text.str();
}

}  // namespace mx::examples
