#include "tests/fuzz/data_entries.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/io/io_error.h"
#include "nn/data/cifar.h"
#include "nn/data/csv.h"
#include "nn/data/image_file.h"
#include "nn/data/libsvm.h"
#include "nn/data/recordio.h"
#include "nn/data/tokenizer.h"

namespace mx::fuzz {
namespace {

using io::Bytes;

void require_of_data(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Calls `read` with a copy of exactly the file's size, so that AddressSanitizer detects a read past it.
template <class F>
bool accepted_data(Bytes file, const F& read) {
  const std::vector<std::byte> copy(file.begin(), file.end());
  try {
    read(Bytes(copy));
    return true;
  } catch (const Error& e) {
    const std::string_view message = e.what();
    require_of_data(message.starts_with("["), "a message begins with its reader");
    require_of_data(message.size() < 2000, "a message is short");
    return false;
  }
}

/// With bad records left out, a file of records is always accepted, and what is left out is said.
template <class Read>
void require_skips(const Read& read) {
  try {
    read([](const std::string& error) {
      require_of_data(error.starts_with("["), "what is left out is said, beginning with the reader");
    });
  } catch (const Error&) {  // the head of the file, or memory
  }
}

}  // namespace

bool csv(Bytes file) {
  require_skips([&](const data::OnSkip& on_skip) {
    data::parse_csv(file, "fuzz", {.header = false, .bad = data::BadSamples::skip, .on_skip = on_skip});
  });
  return accepted_data(file, [](Bytes bytes) {
    const data::CsvTable table = data::parse_csv(bytes, "fuzz");
    for (const data::CsvTable::Column& column : table.columns()) {
      const size_t rows = column.type == data::CsvType::text      ? column.texts.size()
                          : column.type == data::CsvType::integer ? column.integers.size()
                                                                  : column.reals.size();
      require_of_data(rows == static_cast<size_t>(table.rows()), "each column has every row");
    }
  });
}

bool libsvm(Bytes file) {
  require_skips([&](const data::OnSkip& on_skip) {
    data::parse_libsvm(file, "fuzz", {.bad = data::BadSamples::skip, .on_skip = on_skip});
  });
  return accepted_data(file, [](Bytes bytes) {
    const data::SparseTable table = data::parse_libsvm(bytes, "fuzz");
    const std::vector<int64_t> offsets = table.offsets.to_vector<int64_t>(),
                               indices = table.indices.to_vector<int64_t>();
    require_of_data(offsets.size() == static_cast<size_t>(table.rows) + 1 && offsets[0] == 0 &&
                        offsets.back() == static_cast<int64_t>(indices.size()),
                    "offsets cover the entries");
    for (size_t i = 1; i < offsets.size(); ++i)
      for (int64_t k = offsets[i - 1]; k < offsets[i]; ++k) {
        const int64_t column = indices[static_cast<size_t>(k)];
        require_of_data(column >= 0 && column < table.columns, "columns are within the matrix");
        require_of_data(k == offsets[i - 1] || column > indices[static_cast<size_t>(k) - 1],
                        "columns ascend");
      }
  });
}

bool cifar(Bytes file) {
  require_skips([&](const data::OnSkip& on_skip) {
    data::parse_cifar(file, "fuzz", data::CifarKind::cifar100,
                      {.as_bytes = true, .bad = data::BadSamples::skip, .on_skip = on_skip});
  });
  return accepted_data(file, [](Bytes bytes) {
    const data::ArrayDataset set =
        data::parse_cifar(bytes, "fuzz", data::CifarKind::cifar10, {.as_bytes = true});
    require_of_data(static_cast<size_t>(set.size()) * 3073 == bytes.size(), "every record is read");
    for (int64_t label : set.array(1).to_vector<int64_t>())
      require_of_data(label >= 0 && label < 10, "labels are classes");
  });
}

bool recordio(Bytes file) {
  return accepted_data(file, [](Bytes bytes) {
    for (uint64_t offset = 0; offset < bytes.size();) {
      const uint64_t before = offset;
      std::string record = data::parse_record(bytes, offset, "fuzz");
      require_of_data(offset > before && offset <= bytes.size() && record.size() <= offset - before,
                      "a record lies within its file");
      try {
        const data::RecordHeader header = data::unpack_record(record, "[fuzz]");
        require_of_data(!header.label.empty(), "a header has a label");
      } catch (const FormatError&) {
      }
    }
  });
}

namespace {

bool image(Bytes file, const char* where) {
  return accepted_data(file, [&](Bytes bytes) {
    for (int64_t channels : {0, 1, 3}) {
      const data::HostArray made =
          data::decode_image(bytes, where, {.channels = channels, .max_pixels = 1 << 16});
      require_of_data(made.rank() == 3 && made.numel() > 0 && made.size(0) * made.size(1) <= 1 << 16,
                      "an image has the sizes that are allowed");
      require_of_data(channels == 0 || made.size(2) == channels, "an image has the channels that are wanted");
      const std::string again = data::encode_png(made);
      const data::HostArray same =
          data::decode_image(std::as_bytes(std::span(again)), "[again]", {.channels = made.size(2)});
      require_of_data(same.shape() == made.shape() && std::memcmp(same.raw(), made.raw(), made.bytes()) == 0,
                      "pixels come back");
    }
  });
}

}  // namespace

bool jpeg(Bytes file) { return data::is_jpeg(file) && image(file, "[jpeg] 'fuzz'"); }

bool png(Bytes file) { return data::is_png(file) && image(file, "[png] 'fuzz'"); }

bool tokenizer(Bytes file) {
  return accepted_data(file, [](Bytes bytes) {
    const std::string all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const size_t first = std::min(all.find('\0'), all.size()),
                 second = std::min(all.find('\0', first + 1), all.size());
    const data::BytePairTokenizer made(all.substr(0, first),
                                       first < all.size() ? all.substr(first + 1, second - first - 1) : "");
    const std::string text = second < all.size() ? all.substr(second + 1) : all;
    std::string joined;
    for (const std::string_view word : data::BytePairTokenizer::words(text)) joined += word;
    require_of_data(joined == text, "words are the text");
    // A vocabulary in a file of the fuzzer may give several bytes' tokens other meanings; that they come back
    // holds if each byte has a token.
    require_of_data(made.decode(made.encode(text)) == text, "text comes back");
  });
}

}  // namespace mx::fuzz
