#include "ndarray/io/npy_dict.h"

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/tensor_record.h"

namespace mx::io::detail {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyDict parse() {
    NpyDict dict;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(descr, key);
        parse_descr(dict);
        // A structured type nests lists and tuples. It will be refused, so its content does not matter.
        if (dict.structured) return dict;
      } else if (key == "fortran_order") {
        once(order, key);
        dict.fortran_order = boolean();
      } else if (key == "shape") {
        once(shape, key);
        dict.shape = tuple();
      } else {
        fail("the key 'descr', 'fortran_order' or 'shape'", in_quotes(key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position_ != text_.size()) fail("nothing after the dictionary", found());
    if (!descr || !order || !shape)
      fail("the keys 'descr', 'fortran_order' and 'shape'", std::string("no '") +
                                                                (!descr   ? "descr"
                                                                 : !order ? "fortran_order"
                                                                          : "shape") +
                                                                "'");
    return dict;
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw FormatError(mx::detail::concat(where_, ": expected ", expected, " in the header, got ", got,
                                         " at byte ", position_, " of it"));
  }

  void once(bool& seen, const std::string& key) {
    if (seen) fail("every key once", in_quotes(key) + " twice");
    seen = true;
  }

  void skip_space() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t'))
      ++position_;
  }

  std::string found() const {
    return position_ < text_.size() ? in_quotes(text_.substr(position_, 1)) : std::string("the end");
  }

  bool accept(char c) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'", found());
  }

  std::string string() {
    skip_space();
    const char quote = position_ < text_.size() ? text_[position_] : 0;
    if (quote != '\'' && quote != '"') fail("a string", found());
    const size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fail("a closing quote", "the end of the header");
    const std::string_view value = text_.substr(position_ + 1, end - position_ - 1);
    // NumPy writes no escapes, so their meaning is not defined here.
    if (value.find('\\') != std::string_view::npos) fail("a string without escapes", in_quotes(value));
    position_ = end + 1;
    return std::string(value);
  }

  bool boolean() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(position_, word.size()) != word) continue;
      position_ += word.size();
      return value;
    }
    fail("True or False", found());
  }

  void parse_descr(NpyDict& dict) {
    skip_space();
    dict.structured = position_ < text_.size() && text_[position_] == '[';
    if (!dict.structured) dict.descr = string();
  }

  int64_t integer() {
    skip_space();
    const size_t begin = position_;
    int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      const int digit = text_[position_] - '0';
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
        fail("a size below 2^63", "a larger one");
      ++position_;
    }
    if (position_ == begin) fail("a size of 0 or more", found());
    // Python 2 wrote long numbers with an L at the end.
    if (position_ < text_.size() && text_[position_] == 'L') ++position_;
    return value;
  }

  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      if (shape.rank() == kMaxRank) fail("at most " + std::to_string(kMaxRank) + " dimensions", "more");
      shape.push_back(integer());
      const bool comma = accept(',');
      if (comma) continue;
      // "(3)" is a number in Python, not a tuple.
      if (shape.rank() == 1) fail("',' after the only element of a tuple", found());
      expect(')');
      break;
    }
    return shape;
  }

  std::string_view text_;
  const std::string& where_;
  size_t position_ = 0;
};

}  // namespace

NpyDict parse_npy_dict(std::string_view text, const std::string& where) {
  return Parser(text, where).parse();
}

}  // namespace mx::io::detail
