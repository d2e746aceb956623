#include "nn/data/libsvm.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/atomic_file.h"
#include "ndarray/io/io_error.h"
#include "nn/data/bad_records.h"
#include "operators/kernels/index_check.h"

namespace mx::data {
namespace {

using detail::excerpt;
using detail::parse_number;
using detail::trimmed;

struct SparseRow {
  float label = 0;
  std::vector<int64_t> indices;
  std::vector<float> values;
};

/// Takes the text up to the next space.
std::string_view take_word(std::string_view& line) {
  line = trimmed(line);
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

/// Reads a value or a label. `what` and `word` are for the message.
float parse_value(std::string_view text, const std::string& where, const char* what, std::string_view word) {
  float value = 0;
  if (parse_number(text, value)) return value;
  MX_CHECK(detail::parse_real(text, value), FormatError, where, ": expected ", what, ", got '", excerpt(word),
           "'");
  MX_CHECK(!std::isinf(value), FormatError, where, ": expected a number that f32 can hold, got '",
           excerpt(text), "'");
  return value;
}

SparseRow parse_sparse_row(std::string_view line, const std::string& where, const LibsvmOptions& options) {
  SparseRow row;
  const std::string_view label = take_word(line);
  row.label = parse_value(label, where, "a number as label", label);
  const int64_t first = options.zero_based ? 0 : 1;
  for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
    const size_t colon = word.find(':');
    int64_t index = 0;
    MX_CHECK(colon != std::string_view::npos, FormatError, where, ": expected INDEX:VALUE, got '",
             excerpt(word), "'");
    MX_CHECK(parse_number(word.substr(0, colon), index), FormatError, where,
             ": expected INDEX:VALUE with an integer of 64 bits as index, got '", excerpt(word), "'");
    const float value = parse_value(word.substr(colon + 1), where, "INDEX:VALUE", word);
    MX_CHECK(index >= first, FormatError, where, ": expected an index of at least ", first, ", got ", index);
    index -= first;
    MX_CHECK(row.indices.empty() || index > row.indices.back(), FormatError, where,
             ": expected ascending indices, got ", index + first, " after ", row.indices.back() + first);
    MX_CHECK(options.columns == 0 || index < options.columns, FormatError, where,
             ": expected an index of at most ", options.columns - 1 + first, ", got ", index + first);
    MX_CHECK(index < INT64_MAX, FormatError, where, ": expected an index below ", INT64_MAX, ", got ", index);
    row.indices.push_back(index);
    row.values.push_back(value);
  }
  return row;
}

}  // namespace

SparseTable parse_libsvm(io::Bytes bytes, const std::string& path, const LibsvmOptions& options) {
  MX_CHECK(options.columns >= 0, InvalidArgument,
           "[libsvm] expected a number of columns that is not negative, got ", int64_t{options.columns});
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string where = detail::place("libsvm", path);
  std::vector<float> labels, values;
  std::vector<int64_t> offsets = {0}, indices;
  int64_t columns = options.columns, number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    line = trimmed(line.substr(0, std::min(line.find('#'), line.size())));
    ++number;
    if (!line.empty())
      detail::read_record(options.bad, options.on_skip, [&] {
        const SparseRow row =
            parse_sparse_row(line, mx::detail::concat(where, ", line ", number, " at offset ", at), options);
        labels.push_back(row.label);
        indices.insert(indices.end(), row.indices.begin(), row.indices.end());
        values.insert(values.end(), row.values.begin(), row.values.end());
        offsets.push_back(static_cast<int64_t>(indices.size()));
        if (!row.indices.empty()) columns = std::max(columns, row.indices.back() + 1);
      });
    at = end + 1;
  }
  SparseTable table;
  table.rows = static_cast<int64_t>(labels.size());
  table.columns = columns;
  table.labels = array(labels);
  table.offsets = array(offsets);
  table.indices = array(indices);
  table.values = array(values);
  return table;
}

SparseTable read_libsvm(const std::string& path, const LibsvmOptions& options) {
  const std::string text = detail::read_text("libsvm", path, options.max_inflated_bytes);
  return parse_libsvm(std::as_bytes(std::span(text)), path, options);
}

namespace {

/// Throws InvalidArgument, naming `op`, unless the parts of the table belong together. Waits for its values.
void check_sparse_table(const char* op, const SparseTable& t) {
  const auto expect = [&](const NDArray& part, const char* name, DType type, int64_t size) {
    MX_CHECK(part.defined() && part.dtype() == type && part.shape() == Shape({size}), InvalidArgument, "[",
             op, "] expected ", name, " of ", type, " (", size, "), got ",
             part.defined() ? mx::detail::concat(part.dtype(), ' ', part.shape()) : "an empty handle");
  };
  MX_CHECK(t.rows >= 0 && t.columns >= 0, InvalidArgument, "[", op,
           "] expected sizes that are not negative, got ", t.rows, " rows and ", t.columns, " columns");
  expect(t.labels, "labels", f32, t.rows);
  expect(t.offsets, "offsets", i64, t.rows + 1);
  const int64_t entries = t.values.defined() && t.values.rank() == 1 ? t.values.size(0) : 0;
  expect(t.values, "values", f32, entries);
  expect(t.indices, "indices", i64, entries);
  const std::vector<int64_t> offsets = t.offsets.to_vector<int64_t>(),
                             indices = t.indices.to_vector<int64_t>();
  kernels::detail::check_offsets(offsets, entries, kernels::detail::OffsetsEnd::exact, "offsets", op);
  for (size_t i = 0; i < indices.size(); ++i)
    MX_CHECK(indices[i] >= 0 && indices[i] < t.columns, InvalidArgument, "[", op,
             "] expected indices from 0 to ", t.columns - 1, ", got ", indices[i], " at position ", i);
}

}  // namespace

NDArray SparseTable::dense() const {
  check_sparse_table("dense", *this);
  NDArray made = zeros({rows, columns}, f32);
  float* const to = made.mutable_data<float>();
  const int64_t* const row = offsets.data<int64_t>();
  const int64_t* const column = indices.data<int64_t>();
  const float* const value = values.data<float>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = row[i]; k < row[i + 1]; ++k) to[i * columns + column[k]] = value[k];
  return made;
}

void write_libsvm(const std::string& path, const SparseTable& table, bool zero_based) {
  check_sparse_table("write_libsvm", table);
  const std::vector<float> labels = table.labels.to_vector<float>(), values = table.values.to_vector<float>();
  const std::vector<int64_t> offsets = table.offsets.to_vector<int64_t>(),
                             indices = table.indices.to_vector<int64_t>();
  io::AtomicFile file(path);
  const auto text = [](auto number) {
    char buffer[64];
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr);
  };
  for (size_t i = 0; i < labels.size(); ++i) {
    std::string line = text(labels[i]);
    for (auto k = static_cast<size_t>(offsets[i]); k < static_cast<size_t>(offsets[i + 1]); ++k)
      line += ' ' + text(indices[k] + (zero_based ? 0 : 1)) + ':' + text(values[k]);
    file.write(line + '\n');
  }
  file.commit();
}

SourceHandle sparse_source(const SparseTable& table) {
  check_sparse_table("sparse_source", table);
  struct Rows {
    std::vector<float> labels, values;
    std::vector<int64_t> offsets, indices;
  };
  const auto rows = std::make_shared<const Rows>(
      Rows{table.labels.to_vector<float>(), table.values.to_vector<float>(),
           table.offsets.to_vector<int64_t>(), table.indices.to_vector<int64_t>()});
  return function_source(table.rows,
                         [rows](int64_t i) {
                           const auto row = static_cast<size_t>(i);
                           const auto begin = static_cast<size_t>(rows->offsets[row]);
                           const auto count = static_cast<size_t>(rows->offsets[row + 1]) - begin;
                           return Sample{host_array(std::span(rows->indices).subspan(begin, count)),
                                         host_array(std::span(rows->values).subspan(begin, count)),
                                         host_scalar(rows->labels[row])};
                         },
                         {"indices", "values", "label"});
}

}  // namespace mx::data
