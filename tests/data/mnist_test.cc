// The digits that are shipped with the examples.
#include <gtest/gtest.h>

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/mnist.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;
using test::idx_header;
using test::spill;

constexpr const char* kFolder = MX_MNIST;

class Mnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " is not here";
  }
};

uint32_t checksum(const std::vector<uint8_t>& bytes) {
  return static_cast<uint32_t>(::crc32_z(0, bytes.data(), bytes.size()));
}

void check_set(Split split, int64_t size, uint32_t image_sum, uint32_t label_sum,
               const std::vector<int64_t>& first) {
  const ArrayDataset set = mnist(kFolder, split);
  ASSERT_EQ(2u, set.fields());
  EXPECT_EQ(size, set.size());
  EXPECT_EQ((Shape{size, 784}), set.array(0).shape());
  EXPECT_EQ(f32, set.array(0).dtype());
  EXPECT_EQ(i64, set.array(1).dtype());
  std::vector<uint8_t> bytes;
  for (float pixel : set.array(0).to_vector<float>()) {
    ASSERT_TRUE(pixel >= 0 && pixel <= 1);
    const auto byte = static_cast<uint8_t>(pixel * 255 + 0.5f);
    ASSERT_EQ(static_cast<float>(byte) / 255.f, pixel);
    bytes.push_back(byte);
  }
  EXPECT_EQ(image_sum, checksum(bytes));
  const std::vector<int64_t> labels = set.array(1).to_vector<int64_t>();
  EXPECT_EQ(label_sum, checksum(std::vector<uint8_t>(labels.begin(), labels.end())));
  EXPECT_EQ(first, std::vector<int64_t>(labels.begin(), labels.begin() + 10));
}

// The checksums are of the files' contents, computed with Python's gzip and zlib.
TEST_F(Mnist, TheTrainingSetIsThatOfTheFiles) {
  check_set(Split::train, 20000, 0xaf46190e, 0x169f440f, {5, 0, 4, 1, 9, 2, 1, 3, 1, 4});
}
TEST_F(Mnist, TheTestSetIsThatOfTheFiles) {
  check_set(Split::test, 10000, 0xe4ca5f57, 0xee8604d9, {7, 2, 1, 0, 4, 1, 4, 9, 5, 9});
}

TEST_F(Mnist, ImagesHaveTheShapeThatIsAskedFor) {
  const NDArray flat = mnist(kFolder, Split::test).array(0);
  const NDArray square = mnist(kFolder, Split::test, {.shape = {1, 28, 28}}).array(0);
  EXPECT_EQ((Shape{10000, 1, 28, 28}), square.shape());
  EXPECT_EQ(flat.select(0, 9).to_vector<float>(), square.select(0, 9).to_vector<float>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { mnist(kFolder, Split::test, {.shape = {28}}); }),
                       "expected a shape of 784 elements"));
}

TEST(MnistFiles, AreReadWithoutCompressionToo) {
  const test::TempFolder folder;
  std::string pixels(2 * 784, '\0');
  pixels[784] = static_cast<char>(255);
  spill(folder / "train-images-idx3-ubyte", idx_header(8, {2, 28, 28}) + pixels);
  spill(folder / "train-labels-idx1-ubyte.gz", test::gzipped(idx_header(8, {2}) + std::string{'\3', '\7'}));
  const ArrayDataset set = mnist(folder.path(), Split::train);
  EXPECT_EQ(1.f, set.array(0).select(0, 1).select(0, 0).item<float>());
  EXPECT_EQ((std::vector<int64_t>{3, 7}), set.array(1).to_vector<int64_t>());
}

TEST(MnistFiles, ThatDoNotFitAreNamed) {
  const test::TempFolder folder;
  const auto message = [&] { return error_of<FormatError>([&] { mnist(folder.path(), Split::test); }); };
  const std::string images = folder / "t10k-images-idx3-ubyte", labels = folder / "t10k-labels-idx1-ubyte";
  EXPECT_TRUE(contains(error_of<FileError>([&] { mnist(folder.path(), Split::test); }), images + ".gz"));
  spill(images, idx_header(8, {1, 28, 28}) + std::string(784, 'x'));
  spill(labels, idx_header(8, {2}) + std::string(2, '\1'));
  EXPECT_TRUE(contains(message(), "expected as many labels as images, got 2 and 1"));
  spill(labels, idx_header(8, {1}) + std::string(1, '\n'));
  EXPECT_TRUE(contains(message(), "expected labels from 0 to 9, got 10 at position 0"));
  spill(labels, idx_header(8, {1, 1}) + std::string(1, '\1'));
  EXPECT_TRUE(contains(message(), "expected bytes in 1 dimension, got u8 of shape (1, 1)"));
  spill(labels, idx_header(8, {1}) + std::string(1, '\1'));
  spill(images, idx_header(8, {1, 28, 27}) + std::string(756, 'x'));
  EXPECT_TRUE(contains(message(), "expected images of 28 x 28, got shape (1, 28, 27)"));
}

}  // namespace
}  // namespace mx::data
