#include "ndarray/print.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/print_number.h"

namespace mx {
namespace {

size_t to_size(int64_t n) { return static_cast<size_t>(n); }

std::string padded_left(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

/// Determines which elements are written, and where lines break.
class Layout {
 public:
  Layout(const Tensor& tensor, const PrintOptions& options)
      : tensor_(tensor), options_(options), summary_(tensor.numel() > options.threshold) {
    collect(0, 0);
  }

  /// Returns the written elements' distances from the first one, in the order in which they are written.
  const std::vector<int64_t>& offsets() const { return offsets_; }

  /// Returns the text of the array. `words` are the texts of the elements at offsets().
  std::string text(const std::vector<std::string>& words) {
    word_ = words.data();
    return block(0, " ", options_.line_width);
  }

 private:
  bool shortened(int axis) const { return summary_ && tensor_.shape[axis] > 2 * options_.edge_items; }

  /// Calls visit(i) for each index that is written, and skip() once if others are omitted.
  template <class Visit, class Skip>
  void each(int axis, const Visit& visit, const Skip& skip) const {
    const int64_t n = tensor_.shape[axis], edge = options_.edge_items;
    if (!shortened(axis)) {
      for (int64_t i = 0; i < n; ++i) visit(i);
      return;
    }
    for (int64_t i = 0; i < edge; ++i) visit(i);
    skip();
    for (int64_t i = n - edge; i < n; ++i) visit(i);
  }

  void collect(int axis, int64_t offset) {
    if (axis == tensor_.rank()) {
      offsets_.push_back(offset);
      return;
    }
    each(
        axis, [&](int64_t i) { collect(axis + 1, offset + i * tensor_.strides[axis]); }, [] {});
  }

  std::string block(int axis, const std::string& indent, int64_t width) {
    const int64_t last = tensor_.shape[axis] - 1;
    std::string text;
    if (axis == tensor_.rank() - 1) {
      std::string line = indent;
      const auto add = [&](const std::string& word) {
        // A word that is alone on its line gets no line break before it, even if it is too long.
        if (static_cast<int64_t>(line.size() + word.size()) > width - 1 && line.size() > indent.size()) {
          text += line.erase(line.find_last_not_of(' ') + 1) + '\n';
          line = indent;
        }
        line += word;
      };
      each(
          axis,
          [&](int64_t i) {
            add(*word_++);
            if (i != last) line += ' ';
          },
          [&] {
            add("...");
            line += ' ';
          });
      text += line;
    } else {
      const std::string between(to_size(tensor_.rank() - axis - 1), '\n');
      each(
          axis,
          [&](int64_t i) {
            text += indent + block(axis + 1, indent + ' ', width - 1);
            if (i != last) text += between;
          },
          [&] { text += indent + "..." + between; });
    }
    return '[' + text.substr(indent.size()) + ']';
  }

  const Tensor& tensor_;
  const PrintOptions& options_;
  const bool summary_;
  std::vector<int64_t> offsets_;
  const std::string* word_ = nullptr;
};

/// Returns the quotient, rounded to the type.
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_same_v<T, float16>) {
    return float16(float(a) / float(b));
  } else {
    return a / b;
  }
}

/// An array is written with exponents if its largest absolute value is at least this: 10 to the number of
/// digits that the type holds, at most 8.
template <class T>
constexpr double kCutoff = 1e8;
template <>
constexpr double kCutoff<float> = 1e6;
template <>
constexpr double kCutoff<float16> = 1e3;

template <class T>
bool wants_exponents(const std::vector<T>& finite, bool suppress) {
  bool any = false;
  T largest{}, smallest{};
  for (T value : finite) {
    if (value == T{}) continue;
    const T size(std::fabs(value));
    if (!any || size > largest) largest = size;
    if (!any || size < smallest) smallest = size;
    any = true;
  }
  if (!any) return false;
  if (double(largest) >= kCutoff<T>) return true;
  // The limits are rounded to the array's type.
  return !suppress && (smallest < static_cast<T>(0.0001) || quotient(largest, smallest) > T(1000));
}

template <class T>
std::vector<std::string> float_words(const std::vector<T>& values, const PrintOptions& options) {
  std::vector<T> finite;
  bool negative_infinity = false;
  for (T value : values) {
    if (std::isfinite(value)) finite.push_back(value);
    negative_infinity |= std::isinf(value) && value < T{};
  }
  const bool exponents = wants_exponents(finite, options.suppress);
  // The largest widths before and after the point in the whole array.
  size_t left = 0, right = 0, exponent_digits = 0;
  int precision = options.precision;
  std::vector<std::string> texts;
  for (T value : finite) {
    texts.push_back(exponents ? detail::scientific(value, options.precision, false)
                              : detail::positional(value, options.precision));
    const std::string& text = texts.back();
    const size_t point = text.find('.'), e = std::min(text.find('e'), text.size());
    left = std::max(left, point);
    right = std::max(right, e - point - 1);
    if (exponents) exponent_digits = std::max(exponent_digits, text.size() - e - 2);
  }
  if (exponents) {
    precision = static_cast<int>(right);
    right += exponent_digits + 2;
  }
  if (finite.size() < values.size()) {
    const size_t rest = right + 1;
    const size_t widest = negative_infinity ? 4 : 3;
    if (widest > rest) left = std::max(left, widest - rest);
  }
  std::vector<std::string> words;
  words.reserve(values.size());
  size_t next = 0;
  for (T value : values) {
    if (!std::isfinite(value)) {
      words.push_back(padded_left(detail::scalar_text(value), left + right + 1));
      continue;
    }
    std::string text = std::move(texts[next++]);
    if (exponents) {
      text = detail::scientific(value, precision, true);
      const size_t digits = text.size() - text.find('e') - 2;
      text.insert(text.find('e') + 2, exponent_digits - digits, '0');
    }
    const size_t point = text.find('.');
    text.insert(0, left - point, ' ');
    if (!exponents) text.append(left + 1 + right - text.size(), ' ');
    words.push_back(std::move(text));
  }
  return words;
}

std::vector<std::string> aligned(std::vector<std::string> words) {
  size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size());
  for (std::string& word : words) word = padded_left(word, width);
  return words;
}

template <class T>
std::string element_text(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "True" : "False";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return detail::scalar_text(value);
  }
}

template <class T>
std::string format_typed(const Tensor& tensor, const PrintOptions& options) {
  using Shown = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;
  const T* const data = tensor.as<T>();
  if (tensor.rank() == 0) return element_text(static_cast<Shown>(*data));
  Layout layout(tensor, options);
  std::vector<std::string> words;
  if constexpr (std::is_integral_v<T>) {
    for (int64_t offset : layout.offsets()) words.push_back(element_text(data[offset]));
    // Columns are as wide as "False" even if all elements are true.
    if constexpr (std::is_same_v<T, bool>) words.push_back("False");
    words = aligned(std::move(words));
  } else {
    std::vector<Shown> values;
    for (int64_t offset : layout.offsets()) values.push_back(static_cast<Shown>(data[offset]));
    words = float_words(values, options);
  }
  return layout.text(words);
}

}  // namespace

namespace {

void check_options(const char* op, const PrintOptions& options) {
  MX_CHECK(options.precision >= 0 && options.precision <= 100, InvalidArgument, "[", op,
           "] expected a precision from 0 to 100, got ", options.precision);
  MX_CHECK(options.threshold >= 0, InvalidArgument, "[", op, "] expected a threshold of 0 or more, got ",
           options.threshold);
  MX_CHECK(options.edge_items >= 1, InvalidArgument, "[", op, "] expected at least 1 edge item, got ",
           options.edge_items);
  MX_CHECK(options.line_width >= 0, InvalidArgument, "[", op, "] expected a line width of 0 or more, got ",
           options.line_width);
}

std::mutex options_mutex;
PrintOptions process_options;  // guarded by options_mutex

}  // namespace

void set_print_options(const PrintOptions& options) {
  check_options("set_print_options", options);
  const std::lock_guard lock(options_mutex);
  process_options = options;
}

PrintOptions print_options() {
  const std::lock_guard lock(options_mutex);
  return process_options;
}

std::string format(const Tensor& tensor, const PrintOptions& options) {
  check_options("format", options);
  if (tensor.numel() == 0) return "[]";
  return visit(tensor.dtype,
               [&](auto tag) { return format_typed<typename decltype(tag)::type>(tensor, options); });
}

}  // namespace mx
