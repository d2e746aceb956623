#include "nn/data/csv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/io/atomic_file.h"
#include "ndarray/io/io_error.h"
#include "nn/data/bad_records.h"

namespace mx::data {
namespace {

using detail::excerpt;
using detail::parse_number;
using detail::trimmed;

struct Record {
  std::vector<std::string> fields;
  std::vector<uint8_t> in_quotes;  // of each field
  int64_t line = 0;
  size_t offset = 0;
};

/// Splits text into records.
class CsvScanner {
 public:
  CsvScanner(std::string_view text, const std::string& where, const CsvOptions& options)
      : text_(text), where_(where), separator_(options.separator) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;  // the mark that some programs put before UTF-8
  }

  /// Reads the next record; returns false at the end. After a FormatError the next call reads the record
  /// after the damaged one.
  bool next(Record& record) {
    skip_empty_lines();
    if (at_ >= text_.size()) return false;
    record.fields.clear();
    record.in_quotes.clear();
    record.line = line_;
    record.offset = at_;
    do {
      record.in_quotes.push_back(at_ < text_.size() && text_[at_] == '"' ? 1 : 0);
      record.fields.push_back(record.in_quotes.back() != 0 ? quoted(record) : plain());
    } while (at_ < text_.size() && take(separator_));
    end_line(record);
    return true;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool line_ends() const {
    return text_[at_] == '\n' || (text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'));
  }

  void skip_empty_lines() {
    while (at_ < text_.size() && line_ends()) {
      take('\r');
      if (take('\n')) ++line_;
    }
  }

  std::string plain() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && !line_ends()) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted(const Record& record) {
    std::string made;
    const size_t begin = at_++;
    int64_t lines = 0;
    for (;;) {
      if (at_ >= text_.size()) {
        // The rest of this line is skipped, not the rest of the file.
        at_ = begin;
        skip_line();
        throw FormatError(mx::detail::concat(where_, ": expected a closing quote for the field at offset ",
                                             begin, " in line ", record.line, ", got the end of the file"));
      }
      const char c = text_[at_++];
      if (c == '"' && !take('"')) break;
      if (c == '\n') ++lines;
      made += c;
    }
    line_ += lines;
    return made;
  }

  void end_line(const Record& record) {
    if (at_ >= text_.size()) return;
    if (line_ends()) {
      take('\r');
      if (take('\n')) ++line_;
      return;
    }
    const size_t bad = at_;
    skip_line();
    throw FormatError(mx::detail::concat(
        where_, ": expected '", separator_, "' or the end of the line after a closing quote at offset ", bad,
        " in line ", record.line, ", got '", excerpt(text_.substr(bad, 1)), "'"));
  }

  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    if (take('\n')) ++line_;
  }

  std::string_view text_;
  const std::string& where_;
  char separator_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

bool is_integer(const std::string& field) {
  int64_t value;
  return parse_number(trimmed(field), value);
}

bool is_real(const std::string& field) {
  double value;
  return trimmed(field).empty() || detail::parse_real(trimmed(field), value);
}

double real_of(const std::string& field) {
  double value = std::numeric_limits<double>::quiet_NaN();
  detail::parse_real(trimmed(field), value);
  return value;
}

CsvType narrowest(const std::vector<Record>& records, size_t column, bool quotes_are_text) {
  CsvType type = CsvType::integer;
  for (const Record& record : records) {
    const std::string& field = record.fields[column];
    if (quotes_are_text && record.in_quotes[column] != 0) return CsvType::text;
    if (type == CsvType::integer && !is_integer(field)) type = CsvType::real;
    if (type == CsvType::real && !is_real(field)) return CsvType::text;
  }
  return records.empty() ? CsvType::real : type;
}

void check_field(const std::string& where, const Record& record, const CsvTable::Column& column,
                 const std::string& field) {
  const bool fits =
      column.type == CsvType::text || (column.type == CsvType::integer ? is_integer(field) : is_real(field));
  MX_CHECK(fits, FormatError, where, ": expected ",
           column.type == CsvType::integer ? "an integer of 64 bits" : "a number", " in column '",
           column.name, "' of the record at offset ", record.offset, ", line ", record.line, ", got '",
           excerpt(field), "'");
}

void append_field(CsvTable::Column& column, std::string& field) {
  if (column.type == CsvType::text) {
    column.texts.push_back(std::move(field));
  } else if (column.type == CsvType::real) {
    column.reals.push_back(real_of(field));
  } else {
    column.integers.push_back(0);
    parse_number(trimmed(field), column.integers.back());
  }
}

/// Returns a text such that the reader, if it takes quotes for text, does not take it for a number.
std::string csv_quoted(const std::string& text, char separator) {
  const bool plain = text.find_first_of("\"\r\n") == std::string::npos && !text.starts_with('\xef') &&
                     text.find(separator) == std::string::npos && trimmed(text) == text && !is_real(text);
  if (plain) return text;
  std::string made = "\"";
  for (char c : text) made += c == '"' ? std::string("\"\"") : std::string(1, c);
  return made + '"';
}

std::string field_text(const CsvTable::Column& column, size_t row, char separator) {
  if (column.type == CsvType::text) return csv_quoted(column.texts[row], separator);
  char buffer[64];
  const std::to_chars_result end = column.type == CsvType::integer
                                       ? std::to_chars(buffer, buffer + sizeof(buffer), column.integers[row])
                                       : std::to_chars(buffer, buffer + sizeof(buffer), column.reals[row]);
  std::string text(buffer, end.ptr);
  // Without a point, a column of whole numbers would be read as integers.
  if (column.type == CsvType::real && is_integer(text)) text += ".0";
  return text.find(separator) == std::string::npos ? text : '"' + text + '"';
}

void check_separator(char separator) {
  MX_CHECK(separator != '"' && separator != '\n' && separator != '\r', InvalidArgument,
           "[csv] expected a separator other than a quote or the end of a line, got ",
           separator == '"' ? "a quote" : "the end of a line");
}

}  // namespace

CsvTable parse_csv(io::Bytes bytes, const std::string& path, const CsvOptions& options) {
  check_separator(options.separator);
  const std::string where = detail::place("csv", path);
  CsvScanner scanner({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where, options);
  std::vector<CsvTable::Column> columns;
  std::unordered_set<std::string> names;
  std::vector<Record> records;
  Record record;
  if (options.header) {
    MX_CHECK(scanner.next(record), FormatError, where,
             ": expected a record with the names of the columns at offset 0, got an empty file");
    for (size_t i = 0; i < record.fields.size(); ++i) {
      const std::string& name = record.fields[i];
      const std::string short_name(record.in_quotes[i] != 0 ? std::string_view(name) : trimmed(name));
      MX_CHECK(names.insert(short_name).second, FormatError, where,
               ": expected different names of columns, got '", excerpt(short_name), "' twice");
      columns.push_back({short_name});
    }
  }
  for (bool more = true; more;)
    detail::read_record(options.bad, options.on_skip, [&] {
      more = scanner.next(record);
      if (!more) return;
      if (columns.empty())
        for (size_t i = 0; i < record.fields.size(); ++i) {
          columns.push_back({std::to_string(i)});
          names.insert(columns.back().name);
        }
      MX_CHECK(record.fields.size() == columns.size(), FormatError, where, ": expected ", columns.size(),
               " fields in the record at offset ", record.offset, ", line ", record.line, ", got ",
               record.fields.size());
      records.push_back(record);
    });
  for (const auto& [name, type] : options.types)
    MX_CHECK(names.contains(name), InvalidArgument,
             "[csv] expected types of columns that the file has, got one for '", name, "'");
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto given = options.types.find(columns[i].name);
    columns[i].type =
        given == options.types.end() ? narrowest(records, i, options.quotes_are_text) : given->second;
  }
  int64_t rows = 0;
  for (Record& one : records)
    rows += detail::read_record(options.bad, options.on_skip, [&] {
      for (size_t i = 0; i < columns.size(); ++i) check_field(where, one, columns[i], one.fields[i]);
      for (size_t i = 0; i < columns.size(); ++i) append_field(columns[i], one.fields[i]);
    });
  return CsvTable(std::move(columns), rows);
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  const std::string text = detail::read_text("csv", path, options.max_inflated_bytes);
  return parse_csv(std::as_bytes(std::span(text)), path, options);
}

void write_csv(const std::string& path, const CsvTable& table, char separator) {
  check_separator(separator);
  io::AtomicFile file(path);
  std::string line;
  for (size_t i = 0; i < table.columns().size(); ++i) {
    if (i > 0) line += separator;
    line += csv_quoted(table.columns()[i].name, separator);
  }
  file.write(line += '\n');
  for (int64_t row = 0; row < table.rows(); ++row) {
    line.clear();
    for (size_t i = 0; i < table.columns().size(); ++i) {
      if (i > 0) line += separator;
      line += field_text(table.columns()[i], static_cast<size_t>(row), separator);
    }
    file.write(line += '\n');
  }
  file.commit();
}

CsvTable::CsvTable(std::vector<Column> columns, int64_t rows) : columns_(std::move(columns)), rows_(rows) {
  for (const Column& column : columns_) {
    const size_t values = column.type == CsvType::integer ? column.integers.size()
                          : column.type == CsvType::real  ? column.reals.size()
                                                          : column.texts.size();
    MX_CHECK(static_cast<int64_t>(values) == rows, InvalidArgument, "[csv] expected ", rows,
             " values in column '", column.name, "', got ", values);
  }
}

const CsvTable::Column& CsvTable::column(const std::string& name) const {
  for (const Column& column : columns_)
    if (column.name == name) return column;
  throw_unknown(name);
}

void CsvTable::throw_unknown(const std::string& name) const {
  std::string known;
  for (const Column& column : columns_) {
    if (!known.empty()) known += ", ";
    known += column.name;
  }
  throw InvalidArgument(
      mx::detail::concat("[csv] expected the name of a column (", known, "), got '", name, "'"));
}

NDArray CsvTable::operator[](const std::string& name) const { return numbers(column(name)); }

NDArray CsvTable::numbers(const Column& chosen) {
  MX_CHECK(chosen.type != CsvType::text, InvalidArgument, "[csv] expected a column of numbers, got '",
           chosen.name, "', which has text; codes() numbers its values");
  return chosen.type == CsvType::integer ? array(chosen.integers) : array(chosen.reals);
}

NDArray CsvTable::matrix(const std::vector<std::string>& names, DType dtype) const {
  std::vector<const Column*> chosen;
  if (names.empty()) {
    for (const Column& column : columns_) chosen.push_back(&column);
  } else {
    std::unordered_map<std::string_view, const Column*> by_name;
    for (const Column& column : columns_) by_name.try_emplace(column.name, &column);
    for (const std::string& name : names) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) throw_unknown(name);
      chosen.push_back(found->second);
    }
  }
  NDArray made = empty({rows_, static_cast<int64_t>(chosen.size())}, dtype);
  for (size_t i = 0; i < chosen.size(); ++i)
    made.slice(1, {static_cast<int64_t>(i), static_cast<int64_t>(i) + 1})
        .copy_from(numbers(*chosen[i]).to(dtype).expand_dims(1));
  return made;
}

CsvTable::Codes CsvTable::codes(const std::string& name) const {
  const Column& chosen = column(name);
  MX_CHECK(chosen.type == CsvType::text, InvalidArgument, "[csv] expected a column of text, got '", name,
           "', which has numbers");
  Codes made;
  made.values = chosen.texts;
  std::sort(made.values.begin(), made.values.end());
  made.values.erase(std::unique(made.values.begin(), made.values.end()), made.values.end());
  std::vector<int64_t> codes;
  for (const std::string& text : chosen.texts)
    codes.push_back(std::lower_bound(made.values.begin(), made.values.end(), text) - made.values.begin());
  made.array = array(codes);
  return made;
}

}  // namespace mx::data
