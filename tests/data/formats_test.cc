// Readers of tables: CSV, LibSVM and CIFAR. What is read, and what is refused with file and place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/cifar.h"
#include "nn/data/csv.h"
#include "nn/data/libsvm.h"
#include "nn/data/loader.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::as_bytes;
using test::contains;
using test::error_of;

CsvTable csv(const std::string& text, const CsvOptions& options = {}) {
  return parse_csv(as_bytes(text), "a.csv", options);
}

std::string csv_refused(const std::string& text, const CsvOptions& options = {}) {
  const std::string message = error_of<FormatError>([&] { csv(text, options); });
  EXPECT_TRUE(contains(message, "[csv] 'a.csv'") && contains(message, "expected") && contains(message, "got"))
      << message;
  return message;
}

TEST(Csv, TypesOfColumnsFollowFromTheirFields) {
  const CsvTable table = csv("id,price, name\n1,2.5,ann\n-7,,\"b, \"\"c\"\"\nd\"\n+3,1e3,\n");
  ASSERT_EQ(3u, table.columns().size());
  EXPECT_EQ(3, table.rows());
  EXPECT_EQ((std::vector<int64_t>{1, -7, 3}), table["id"].to_vector<int64_t>());
  const std::vector<double> price = table["price"].to_vector<double>();
  EXPECT_EQ(2.5, price[0]);
  EXPECT_TRUE(std::isnan(price[1]));
  EXPECT_EQ(1000, price[2]);
  EXPECT_EQ((std::vector<std::string>{"ann", "b, \"c\"\nd", ""}), table.column("name").texts);
  EXPECT_EQ((std::vector<float>{1, 2.5f}), table.matrix({"id", "price"})[0].to_vector<float>());
}

TEST(Csv, LinesMayEndInEveryWayAndTheFileWithoutOne) {
  for (const std::string text : {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\n\n1,2\n\n3,4",
                                 "\xef\xbb\xbf"
                                 "a,b\n1,2\n3,4",
                                 "\"a\",\"b\"\n\"1\",\"2\"\r\n3,4\r"}) {
    const CsvTable table = csv(text);
    EXPECT_EQ((std::vector<int64_t>{1, 3}), table["a"].to_vector<int64_t>()) << text;
    EXPECT_EQ((std::vector<int64_t>{2, 4}), table["b"].to_vector<int64_t>()) << text;
  }
}

TEST(Csv, OptionsChooseSeparatorHeaderAndTypes) {
  const CsvTable table =
      csv("1;x\n2;y\n", {.separator = ';', .header = false, .types = {{"0", CsvType::real}}});
  EXPECT_EQ(f64, table["0"].dtype());
  EXPECT_EQ((std::vector<std::string>{"x", "y"}), table.column("1").texts);
  const CsvTable::Codes codes = csv("c\nred\nblue\nred\n").codes("c");
  EXPECT_EQ((std::vector<std::string>{"blue", "red"}), codes.values);
  EXPECT_EQ((std::vector<int64_t>{1, 0, 1}), codes.array.to_vector<int64_t>());
  EXPECT_EQ(0, csv("a,b\n").rows());
}

// The time was the square of the number of columns, also for reading all of them.
TEST(Csv, TablesMayHaveManyColumns) {
  constexpr int64_t kColumns = 3000;
  std::string header, row;
  for (int64_t i = 0; i < kColumns; ++i) {
    header += (i == 0 ? "c" : ",c") + std::to_string(i);
    row += (i == 0 ? "" : ",") + std::to_string(i);
  }
  const CsvTable table = csv(header + '\n' + row + '\n');
  const NDArray all = table.matrix({}, f64);
  EXPECT_EQ((Shape{1, kColumns}), all.shape());
  EXPECT_EQ(arange(kColumns).to(f64).to_vector<double>(), all.to_vector<double>());
  EXPECT_EQ((std::vector<double>{2999, 0, 2999}),
            table.matrix({"c2999", "c0", "c2999"}, f64).to_vector<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { table.matrix({"c1", "d"}); }), "got 'd'"));
  EXPECT_TRUE(contains(csv_refused(header + ",c1500\n"), "'c1500' twice"));
}

TEST(Csv, DamagedRecordsAreNamedByLineAndOffset) {
  EXPECT_TRUE(
      contains(csv_refused("a,b\n1,2\n3\n"), "expected 2 fields in the record at offset 8, line 3, got 1"));
  EXPECT_TRUE(
      contains(csv_refused("a,b\n1,2\n\"3,4\n5,6"), "closing quote for the field at offset 8 in line 3"));
  EXPECT_TRUE(
      contains(csv_refused("a,b\n\"1\"x,2\n"), "after a closing quote at offset 7 in line 2, got 'x'"));
  EXPECT_TRUE(
      contains(csv_refused("a\n1\nx\n", {.types = {{"a", CsvType::integer}}}),
               "expected an integer of 64 bits in column 'a' of the record at offset 4, line 3, got 'x'"));
  EXPECT_TRUE(contains(csv_refused("a\n1\n99999999999999999999\n", {.types = {{"a", CsvType::integer}}}),
                       "offset 4"));
  EXPECT_TRUE(contains(csv_refused(""), "empty file"));
  EXPECT_TRUE(contains(csv_refused("a,a\n"), "'a' twice"));
}

TEST(Csv, DamagedRecordsAreSkippedByChoice) {
  std::vector<std::string> skipped;
  const CsvOptions options{.types = {{"a", CsvType::integer}, {"b", CsvType::integer}},
                           .bad = BadSamples::skip,
                           .on_skip = [&](const std::string& error) { skipped.push_back(error); }};
  const CsvTable table = csv("a,b\n1,2\n3\n4,x\n\"5\"y,6\n7,8\n\"9,10\n11,12\n", options);
  EXPECT_EQ((std::vector<int64_t>{1, 7, 11}), table["a"].to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{2, 8, 12}), table["b"].to_vector<int64_t>());
  EXPECT_EQ(4u, skipped.size());
}

TEST(Csv, WhatIsWrittenIsReadAgain) {
  const test::TempFolder folder;
  const CsvTable table = csv("i,r,\"t,\"\n1,0.1,\" a\"\n-9223372036854775808,-1e-300,\"x\"\"y\n\"\n3,nan,\n");
  write_csv(folder / "t.csv", table);
  const CsvTable again = read_csv(folder / "t.csv");
  EXPECT_EQ(table.column("i").integers, again.column("i").integers);
  EXPECT_EQ(0.1, again.column("r").reals[0]);
  EXPECT_EQ(-1e-300, again.column("r").reals[1]);
  EXPECT_TRUE(std::isnan(again.column("r").reals[2]));
  EXPECT_EQ(table.column("t,").texts, again.column("t,").texts);
  test::spill(folder / "t.csv.gz", test::gzipped(test::slurp(folder / "t.csv")));
  EXPECT_EQ(3, read_csv(folder / "t.csv.gz").rows());
  EXPECT_TRUE(
      contains(error_of<FormatError>([&] { read_csv(folder / "t.csv.gz", {.max_inflated_bytes = 5}); }),
               "at most 5 bytes"));
  error_of<FileError>([&] { read_csv(folder / "none.csv"); });
}

TEST(Csv, TextsThatLookLikeNumbersStayTexts) {
  const test::TempFolder folder;
  const std::vector<std::string> texts = {"1", "-0x1", "1e999", "nan", "", " 7", "007", "inf", ".5", "a"};
  const std::vector<double> reals = {1, -0.0, 1e300, 5e-324, HUGE_VAL, 3, 1e15, 1e16, -2, 0.5};
  const CsvTable table(
      {{.name = " t", .type = CsvType::text, .texts = texts},
       {.name = "digits", .type = CsvType::text, .texts = std::vector<std::string>(10, "12")},
       {.name = "\xef\xbb\xbf", .type = CsvType::real, .reals = reals},
       {.name = "whole", .type = CsvType::real, .reals = std::vector<double>(10, 2.0)},
       {.name = "i", .type = CsvType::integer, .integers = {INT64_MIN, INT64_MAX, 0, 1, 2, 3, 4, 5, 6, 7}}},
      10);
  for (const char separator : {',', '.', '1', ' ', 'e', '-'}) {
    write_csv(folder / "t.csv", table, separator);
    const CsvTable again = read_csv(
        folder / "t.csv",
        {.separator = separator,
         .types = {{"whole", CsvType::real}, {"i", CsvType::integer}, {"\xef\xbb\xbf", CsvType::real}},
         .quotes_are_text = true});
    EXPECT_EQ(texts, again.column(" t").texts);
    EXPECT_EQ(table.column("digits").texts, again.column("digits").texts);
    EXPECT_EQ(reals, again.column("\xef\xbb\xbf").reals);
    EXPECT_TRUE(std::signbit(again.column("\xef\xbb\xbf").reals[1]));
    EXPECT_EQ(table.column("i").integers, again.column("i").integers);
  }
  write_csv(folder / "t.csv", table);
  const CsvTable plain = read_csv(folder / "t.csv", {.quotes_are_text = true});
  EXPECT_EQ(table.column("whole").reals, plain.column("whole").reals) << "whole numbers stay reals";
  EXPECT_EQ(CsvType::integer, plain.column("i").type);
  EXPECT_EQ(CsvType::integer, read_csv(folder / "t.csv").column("digits").type) << "quotes do not matter";
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { write_csv(folder / "u.csv", table, '"'); }), "separator"));
}

TEST(Csv, NumbersBeyondTheirTypesAreDefined) {
  const CsvTable table =
      csv("a,b,c,d\n9223372036854775807,9223372036854775808,1e999,-1e-999\n"
          "-9223372036854775808,1,-1e999,0.0000001e-320\n");
  EXPECT_EQ((std::vector<int64_t>{INT64_MAX, INT64_MIN}), table["a"].to_vector<int64_t>());
  EXPECT_EQ((std::vector<double>{9223372036854775808.0, 1}), table["b"].to_vector<double>());
  EXPECT_EQ((std::vector<double>{HUGE_VAL, -HUGE_VAL}), table["c"].to_vector<double>());
  EXPECT_EQ((std::vector<double>{0, 0}), table["d"].to_vector<double>());
  EXPECT_TRUE(contains(csv_refused("a\n9223372036854775808\n", {.types = {{"a", CsvType::integer}}}),
                       "an integer of 64 bits in column 'a'"));
}

TEST(Csv, PythonReadsWhatIsWrittenAndWritesWhatIsRead) {
  const std::string python = test::python_with("csv");
  if (python.empty()) GTEST_SKIP() << "there is no Python";
  const test::TempFolder folder;
  write_csv(folder / "a.csv", csv("t,i\n\"q \"\"x\"\", \ny\",5\nplain,-6\n"));
  ASSERT_TRUE(test::run_python(python, folder, R"(
import csv
rows = list(csv.reader(open('a.csv', newline='')))
assert rows == [['t', 'i'], ['q "x", \ny', '5'], ['plain', '-6']], rows
csv.writer(open('b.csv', 'w', newline='')).writerows([['n', 'x'], ['a,b', 0.1], ['c"\r\n"d', -2.5e-300], ['', 7]])
)"));
  const CsvTable table = read_csv(folder / "b.csv");
  EXPECT_EQ((std::vector<std::string>{"a,b", "c\"\r\n\"d", ""}), table.column("n").texts);
  EXPECT_EQ((std::vector<double>{0.1, -2.5e-300, 7}), table.column("x").reals);
}

TEST(Csv, NamesOfColumnsMustBeThere) {
  const CsvTable table = csv("a,t\n1,x\n");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { table["b"]; }), "(a, t), got 'b'"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { table["t"]; }), "has text"));
  error_of<InvalidArgument>([&] { table.codes("a"); });
  error_of<InvalidArgument>([&] { csv("a\n1\n", {.types = {{"z", CsvType::real}}}); });
}

SparseTable libsvm(const std::string& text, const LibsvmOptions& options = {}) {
  return parse_libsvm(as_bytes(text), "a.svm", options);
}

TEST(Libsvm, RowsAreSparse) {
  const SparseTable table = libsvm("+1 1:0.5 3:-2 # first\n\n-1\n2.5 2:1e-3\r\n");
  EXPECT_EQ(3, table.rows);
  EXPECT_EQ(3, table.columns);
  EXPECT_EQ((std::vector<float>{1, -1, 2.5f}), table.labels.to_vector<float>());
  EXPECT_EQ((std::vector<int64_t>{0, 2, 2, 3}), table.offsets.to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{0, 2, 1}), table.indices.to_vector<int64_t>());
  EXPECT_EQ((std::vector<float>{0.5f, 0, -2, 0, 0, 0, 0, 1e-3f, 0}), table.dense().to_vector<float>());
  EXPECT_EQ((Shape{1, 5}), libsvm("1 0:1", {.zero_based = true, .columns = 5}).dense().shape());
  EXPECT_EQ(0, libsvm("").rows);
}

TEST(Libsvm, DamagedLinesAreNamedAndSkippedByChoice) {
  const auto refused = [](const std::string& text, const LibsvmOptions& options = {}) {
    return error_of<FormatError>([&] { libsvm(text, options); });
  };
  EXPECT_TRUE(contains(refused("1 1:2\nx 1:2\n"),
                       "'a.svm', line 2 at offset 6: expected a number as label, got 'x'"));
  EXPECT_TRUE(contains(refused("1 0:2\n"), "an index of at least 1, got 0"));
  EXPECT_TRUE(contains(refused("1 2:2 2:3\n"), "ascending indices, got 2 after 2"));
  EXPECT_TRUE(contains(refused("1 12\n"), "INDEX:VALUE, got '12'"));
  EXPECT_TRUE(contains(refused("1 9223372036854775808:1\n"), "an integer of 64 bits"));
  EXPECT_TRUE(contains(refused("1 9223372036854775807:1\n", {.zero_based = true}), "an index below"));
  EXPECT_TRUE(contains(refused("1 1:1e39\n"), "a number that f32 can hold, got '1e39'"));
  EXPECT_TRUE(contains(refused("-1e99 1:1\n"), "a number that f32 can hold, got '-1e99'"));
  EXPECT_TRUE(contains(refused("1 4:2\n", {.columns = 3}), "an index of at most 3, got 4"));
  int skipped = 0;
  const SparseTable table = libsvm(
      "1 1:2\n1 a\n2 2:3\n", {.bad = BadSamples::skip, .on_skip = [&](const std::string&) { ++skipped; }});
  EXPECT_EQ((std::vector<float>{1, 2}), table.labels.to_vector<float>());
  EXPECT_EQ(1, skipped);
  // An index says how wide the matrix is, and only dense() needs that memory.
  const SparseTable wide = libsvm("1 4611686018427387904:1\n");
  EXPECT_EQ(int64_t{1} << 62, wide.columns);
  EXPECT_THROW(wide.dense(), Error);
}

TEST(Libsvm, ExtremeNumbersRoundTrip) {
  const test::TempFolder folder;
  const SparseTable table =
      libsvm("inf 1:1e-99 2:-inf 9223372036854775807:3.4028235e38\n1e-45 1:-1e-50 3:1e-45\n");
  EXPECT_EQ(INT64_MAX, table.columns);
  const std::vector<float> values = {0, -HUGE_VALF, 3.4028235e38f, -0.f, 1e-45f};
  EXPECT_EQ(values, table.values.to_vector<float>());
  EXPECT_EQ((std::vector<float>{HUGE_VALF, 1e-45f}), table.labels.to_vector<float>());
  write_libsvm(folder / "a.svm", table);
  const SparseTable again = read_libsvm(folder / "a.svm");
  EXPECT_EQ(values, again.values.to_vector<float>());
  EXPECT_EQ(table.indices.to_vector<int64_t>(), again.indices.to_vector<int64_t>());
}

TEST(Libsvm, RoundTripsAndJoinsRowsOfABatch) {
  const test::TempFolder folder;
  const SparseTable table = libsvm("1 1:0.1 7:3\n-1 2:1e-30\n0\n");
  write_libsvm(folder / "a.svm", table);
  const SparseTable again = read_libsvm(folder / "a.svm");
  EXPECT_EQ(table.dense().to_vector<float>(), again.dense().to_vector<float>());
  EXPECT_EQ(table.labels.to_vector<float>(), again.labels.to_vector<float>());

  SampleDataset set(sparse_source(table), {.collate = join()});
  Loader loader(set, {.batch_size = 2});
  const Batch batch = *loader.begin();
  EXPECT_EQ((std::vector<int64_t>{0, 6, 1}), batch["indices"].to_vector<int64_t>());
  EXPECT_EQ((std::vector<float>{0.1f, 3, 1e-30f}), batch["values"].to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, -1}), batch["label"].to_vector<float>());
  EXPECT_EQ((std::vector<int64_t>{0, 2, 3}), batch[3].to_vector<int64_t>());
}

std::string cifar_record(int label, int pixel, int coarse = -1) {
  std::string text;
  if (coarse >= 0) text += static_cast<char>(coarse);
  return text + static_cast<char>(label) + std::string(3072, static_cast<char>(pixel));
}

TEST(Cifar, ReadsBothKinds) {
  const std::string ten = cifar_record(3, 255) + cifar_record(9, 51);
  const ArrayDataset set = parse_cifar(as_bytes(ten), "a", CifarKind::cifar10);
  EXPECT_EQ((Shape{2, 3, 32, 32}), set.array(0).shape());
  EXPECT_EQ(1.f, set.array(0).to_vector<float>()[0]);
  EXPECT_EQ(0.2f, set.array(0).to_vector<float>()[3072]);
  EXPECT_EQ((std::vector<int64_t>{3, 9}), set.array(1).to_vector<int64_t>());
  const std::string hundred = cifar_record(99, 7, 19);
  const ArrayDataset other = parse_cifar(as_bytes(hundred), "a", CifarKind::cifar100, {.as_bytes = true});
  EXPECT_EQ(7, other.array(0).to_vector<uint8_t>()[3071]);
  EXPECT_EQ(99, other.array(1).to_vector<int64_t>()[0]);
  EXPECT_EQ(19, other.array(2).to_vector<int64_t>()[0]);
  EXPECT_EQ((std::vector<std::string>{"image", "label", "coarse"}), other.names());
}

TEST(Cifar, DamagedRecordsAreNamedByFileAndOffset) {
  const auto refused = [](const std::string& file, CifarKind kind) {
    return error_of<FormatError>([&] { parse_cifar(as_bytes(file), "x.bin", kind); });
  };
  EXPECT_TRUE(contains(refused(cifar_record(1, 0) + cifar_record(10, 0), CifarKind::cifar10),
                       "[cifar] 'x.bin': expected a label from 0 to 9 at offset 3073, got 10"));
  EXPECT_TRUE(contains(refused(cifar_record(1, 0) + "abc", CifarKind::cifar10),
                       "record of 3073 bytes at offset 3073, got the end of the file after 3"));
  EXPECT_TRUE(
      contains(refused(cifar_record(100, 0, 1), CifarKind::cifar100), "fine label from 0 to 99 at offset 1"));
  EXPECT_TRUE(contains(refused(cifar_record(1, 0, 20), CifarKind::cifar100), "coarse label"));
  const std::string mixed = cifar_record(10, 0) + cifar_record(2, 0) + "abc";
  const ArrayDataset rest =
      parse_cifar(as_bytes(mixed), "x", CifarKind::cifar10, {.bad = BadSamples::skip, .on_skip = nullptr});
  EXPECT_EQ((std::vector<int64_t>{2}), rest.array(1).to_vector<int64_t>());
}

TEST(Cifar, ReadsTheFilesOfAFolder) {
  const test::TempFolder folder;
  for (int i = 1; i <= 5; ++i)
    test::spill(folder / ("data_batch_" + std::to_string(i) + ".bin"), cifar_record(i, i));
  test::spill(folder / "test_batch.bin", cifar_record(0, 0));
  test::spill(folder / "train.bin", cifar_record(7, 0, 2));
  EXPECT_EQ((std::vector<int64_t>{1, 2, 3, 4, 5}),
            cifar10(folder.path(), Split::train).array(1).to_vector<int64_t>());
  EXPECT_EQ(1, cifar10(folder.path(), Split::test).size());
  EXPECT_EQ(7, cifar100(folder.path(), Split::train).array(1).to_vector<int64_t>()[0]);
  EXPECT_TRUE(contains(error_of<FileError>([&] { cifar100(folder.path(), Split::test); }), "test.bin"));
}

TEST(TablesOfPrograms, PartsThatDoNotBelongTogetherAreRefused) {
  test::expect_error<InvalidArgument>("expected 4 values in column 'a', got 1", [] {
    data::CsvTable({{.name = "a", .type = data::CsvType::integer, .integers = {7}}}, 4);
  });
  const auto refuse = [](const char* text, const data::SparseTable& table) {
    test::expect_error<InvalidArgument>(text, [&] { table.dense(); });
    test::expect_error<InvalidArgument>(text, [&] { data::sparse_source(table); });
    test::expect_error<InvalidArgument>(text, [&] { data::write_libsvm("never_written", table); });
  };
  data::SparseTable table;
  refuse("expected labels", table);
  table.rows = 1;
  table.columns = 3;
  table.labels = zeros({1});
  table.offsets = array<int64_t>({0, 1});
  table.indices = array<int64_t>({1'000'000'000});
  table.values = ones({1});
  refuse("indices from 0 to 2, got 1000000000", table);
  table.indices = array<int64_t>({2});
  table.offsets = array<int64_t>({0, 2'000'000'000});
  refuse("the number of entries, 1, got 2000000000", table);
  table.offsets = array<int64_t>({0, 1});
  EXPECT_EQ(table.dense().to_vector<float>(), (std::vector<float>{0, 0, 1}));
}

}  // namespace
}  // namespace mx::data
