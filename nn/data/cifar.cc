#include "nn/data/cifar.h"

#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/bad_records.h"
#include "operators/elementwise_binary.h"

namespace mx::data {
namespace {

constexpr size_t kPixels = 3 * 32 * 32;

/// Appends the records of one file after the other.
class CifarFiles {
 public:
  CifarFiles(CifarKind kind, const CifarOptions& options, size_t bytes) : kind_(kind), options_(options) {
    pixels_.reserve(bytes);
  }

  void append(io::Bytes file, const std::string& path) {
    const std::string where = detail::place("cifar", path);
    const size_t labels = kind_ == CifarKind::cifar10 ? 1 : 2, record = labels + kPixels;
    for (size_t at = 0; at < file.size(); at += record)
      detail::read_record(options_.bad, options_.on_skip, [&] {
        MX_CHECK(file.size() - at >= record, FormatError, where, ": expected a record of ", record,
                 " bytes at offset ", at, ", got the end of the file after ", file.size() - at);
        const int first = std::to_integer<int>(file[at]), last = std::to_integer<int>(file[at + labels - 1]);
        if (kind_ == CifarKind::cifar10) {
          check_label(where, at, first, 10, "label");
        } else {
          check_label(where, at, first, 20, "coarse label");
          check_label(where, at + 1, last, 100, "fine label");
          coarse_.push_back(first);
        }
        labels_.push_back(last);
        const auto* const begin = reinterpret_cast<const uint8_t*>(file.data()) + at + labels;
        pixels_.insert(pixels_.end(), begin, begin + kPixels);
      });
  }

  ArrayDataset made() const {
    const auto n = static_cast<int64_t>(labels_.size());
    NDArray images = array(pixels_).reshape({n, 3, 32, 32});
    if (!options_.as_bytes) {
      images = images.to(f32);
      images /= 255.f;
    }
    if (kind_ == CifarKind::cifar10) return ArrayDataset({images, array(labels_)}, {"image", "label"});
    return ArrayDataset({images, array(labels_), array(coarse_)}, {"image", "label", "coarse"});
  }

 private:
  static void check_label(const std::string& where, size_t at, int label, int classes, const char* what) {
    MX_CHECK(label < classes, FormatError, where, ": expected a ", what, " from 0 to ", classes - 1,
             " at offset ", at, ", got ", label);
  }

  CifarKind kind_;
  CifarOptions options_;
  std::vector<uint8_t> pixels_;
  std::vector<int64_t> labels_, coarse_;
};

ArrayDataset read_cifar(const std::vector<std::string>& paths, CifarKind kind, const CifarOptions& options) {
  std::vector<io::MappedFile> files;
  size_t bytes = 0;
  for (const std::string& path : paths) {
    files.emplace_back(path);
    bytes += files.back().size();
  }
  CifarFiles all(kind, options, bytes);
  for (const io::MappedFile& file : files) all.append(file.bytes(), file.path());
  return all.made();
}

}  // namespace

ArrayDataset parse_cifar(io::Bytes file, const std::string& path, CifarKind kind,
                         const CifarOptions& options) {
  CifarFiles one(kind, options, file.size());
  one.append(file, path);
  return one.made();
}

ArrayDataset cifar10(const std::string& folder, Split split, const CifarOptions& options) {
  std::vector<std::string> paths;
  if (split == Split::test) paths.push_back(folder + "/test_batch.bin");
  for (int i = 1; split == Split::train && i <= 5; ++i)
    paths.push_back(folder + "/data_batch_" + std::to_string(i) + ".bin");
  return read_cifar(paths, CifarKind::cifar10, options);
}

ArrayDataset cifar100(const std::string& folder, Split split, const CifarOptions& options) {
  return read_cifar({folder + (split == Split::train ? "/train.bin" : "/test.bin")}, CifarKind::cifar100,
                    options);
}

}  // namespace mx::data
