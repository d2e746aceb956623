// Reads tables of comma-separated values (RFC 4180), plain or compressed with gzip.
//
//   data::CsvTable table = data::read_csv("houses.csv");
//   NDArray x = table.matrix({"area", "rooms"}), price = table["price"];
//   data::ArrayDataset set({x, table.codes("city").array});
//
// Fields may be in quotes; a quote inside is doubled, and a line may end inside quotes. Lines end with LF or
// CRLF; empty lines are ignored. A column is i64 if all its fields are integers that i64 can hold, otherwise
// f64 if all are numbers or empty, which is NaN, and otherwise text. So a column with an integer of 2^63
// or more is f64 and loses digits, unless it is text. A number that is too large for f64 is infinite, and one
// that is too small is 0. CsvOptions::types overrides the types, and CsvOptions::quotes_are_text makes
// columns with quotes text.
//
// A record with another number of fields, a quote that is not closed, or a field that is not of its column's
// type is a FormatError that names the file, the line and the byte offset of the record. Thread-safety: that
// of a standard container.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ndarray/io/byte_sink.h"
#include "ndarray/ndarray.h"
#include "nn/data/sample_dataset.h"

namespace mx::data {

enum class CsvType { integer, real, text };

struct CsvOptions {
  char separator = ',';
  bool header = true;  ///< the first record has the names of the columns; otherwise they are "0", "1", ...
  std::map<std::string, CsvType> types{};  ///< by the column's name
  /// A column with a field in quotes is text. Otherwise quotes do not matter, since many programs put them
  /// around numbers too.
  bool quotes_are_text = false;
  BadSamples bad = BadSamples::fail;  ///< skip: records that are damaged are left out
  OnSkip on_skip = log_skipped;
  /// The largest number of bytes that a compressed file may decompress to.
  uint64_t max_inflated_bytes = uint64_t{1} << 32;
};

class CsvTable {
 public:
  struct Column {
    std::string name;
    CsvType type = CsvType::text;
    std::vector<int64_t> integers{};  ///< of this and the next two, the one of `type` has the values
    std::vector<double> reals{};
    std::vector<std::string> texts{};
  };
  struct Codes {
    NDArray array;                    ///< i64 (rows,): the place of each value in `values`
    std::vector<std::string> values;  ///< the different values, in ascending order
  };

  /// Throws InvalidArgument unless each column has `rows` values of its type.
  CsvTable(std::vector<Column> columns, int64_t rows);

  int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  /// Throws InvalidArgument, with the names that there are, for a name that no column has.
  const Column& column(const std::string& name) const;
  /// Returns a column of numbers, i64 or f64 (rows,). Throws InvalidArgument for a column of text.
  NDArray operator[](const std::string& name) const;
  /// Returns columns of numbers side by side, (rows, names.size()); no names: all columns.
  NDArray matrix(const std::vector<std::string>& names = {}, DType dtype = f32) const;
  /// Returns a number for each different text of a column.
  Codes codes(const std::string& name) const;

 private:
  static NDArray numbers(const Column& column);
  [[noreturn]] void throw_unknown(const std::string& name) const;

  std::vector<Column> columns_;
  int64_t rows_;
};

/// `path` is for messages.
CsvTable parse_csv(io::Bytes text, const std::string& path, const CsvOptions& options = {});
CsvTable read_csv(const std::string& path, const CsvOptions& options = {});
/// Writes a table so that read_csv() returns the same values. A file is replaced as a whole. Reals are
/// written with as many digits as needed, and with a point or an exponent. Texts that look like numbers are
/// put in quotes: a table that may have a column of nothing else is read with CsvOptions::quotes_are_text. A
/// column without rows has no type in the file. Throws FileError, and InvalidArgument for a separator that
/// parse_csv() refuses.
void write_csv(const std::string& path, const CsvTable& table, char separator = ',');

}  // namespace mx::data
