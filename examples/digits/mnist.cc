#include "examples/digits/mnist.h"

#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "operators/elementwise_binary.h"

namespace digits {
namespace {

struct Close {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) throw mx::FileError("open", path, errno, "");
  }

  void read(void* to, size_t bytes) {
    const int got = gzread(file_.get(), to, static_cast<unsigned>(bytes));
    MX_CHECK(got == static_cast<int>(bytes), mx::FormatError, "[mnist] '", path_, "': expected ", bytes,
             " more bytes, got ", got);
  }
  int64_t number() {
    uint8_t bytes[4];
    read(bytes, 4);
    return int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  }

  /// The elements, of one byte each, as they are in the file.
  mx::NDArray array(int rank) {
    const int64_t magic = number();
    MX_CHECK(magic == 0x800 + rank, mx::FormatError, "[mnist] '", path_,
             "': expected an IDX file of bytes in ", rank, " dimensions (", 0x800 + rank, "), got ", magic);
    mx::Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(number());
    MX_CHECK(mx::checked_numel(shape, 1, "mnist") <= 1 << 28, mx::FormatError, "[mnist] '", path_,
             "': expected at most 2^28 bytes, got shape ", shape);
    std::vector<uint8_t> bytes(static_cast<size_t>(shape.numel()));
    read(bytes.data(), bytes.size());
    return mx::from_data(bytes.data(), shape);
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

Digits load_mnist(const std::string& folder, const std::string& set) {
  const std::string images_path = folder + "/" + set + "-images-idx3-ubyte.gz";
  const mx::NDArray images = IdxFile(images_path).array(3);
  const mx::NDArray labels = IdxFile(folder + "/" + set + "-labels-idx1-ubyte.gz").array(1);
  MX_CHECK(images.size(0) == labels.size(0), mx::FormatError, "[mnist] '", images_path,
           "': expected as many images as labels, got ", images.size(0), " and ", labels.size(0));
  return {images.reshape({images.size(0), -1}).to(mx::f32) / 255.f, labels.to(mx::i64)};
}

}  // namespace digits
