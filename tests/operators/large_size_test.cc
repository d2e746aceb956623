// Arrays with more elements than an int can count. The tests are slow and need much memory, so they are
// skipped if memory is short and under sanitizers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ndarray/save.h"
#include "operators/operators.h"
#include "tests/ndarray/io_temp.h"

namespace mx {
namespace {

constexpr int64_t kBeyond = (int64_t{1} << 31) + 1000;

bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

int64_t available_gib() {
  std::ifstream in("/proc/meminfo");
  for (std::string name; in >> name;) {
    int64_t kib = 0;
    if (name == "MemAvailable:" && in >> kib) return kib >> 20;
    in.ignore(4096, '\n');
  }
  return 0;
}

class LargeSize : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized()) GTEST_SKIP() << "too slow under a sanitizer";
    if (available_gib() < 8) GTEST_SKIP() << "needs 8 GiB of memory, there are " << available_gib();
  }
};

TEST_F(LargeSize, ElementsBeyondTheRangeOfAnIntAreReachedByEveryKindOfOperator) {
  const NDArray x = zeros({kBeyond}, i8);
  EXPECT_EQ(kBeyond, x.numel());
  x[kBeyond - 1] = 5;
  x[-7] = -3;
  EXPECT_EQ(5, x[-1].item<int8_t>());
  EXPECT_EQ(-3, x.slice(0, {kBeyond - 7, kBeyond - 6}).item<int8_t>());
  EXPECT_EQ(2, sum(x).item<int64_t>());
  EXPECT_EQ(5, max(x).item<int8_t>());
  EXPECT_EQ(kBeyond - 1, argmax(x).item<int64_t>());
  EXPECT_EQ(kBeyond - 7, argmin(x).item<int64_t>());
  EXPECT_EQ(to_string(array({int8_t{0}, int8_t{5}})), to_string(take(x, array({int64_t{3}, kBeyond - 1}))));
  NDArray y = x;
  y += 1;
  EXPECT_EQ(kBeyond + 2, sum(y).item<int64_t>());
  const NDArray places = array({kBeyond - 2, int64_t{0}});
  y[places] = int8_t{9};
  EXPECT_EQ(9, y[kBeyond - 2].item<int8_t>());
  EXPECT_EQ(9, y[0].item<int8_t>());
  EXPECT_EQ(6, y[kBeyond - 1].item<int8_t>());
  EXPECT_EQ("[9 1 1 ... 1 9 6]", to_string(y));
}

TEST_F(LargeSize, TransposedCopiesAndRowsOfLargeMatrices) {
  constexpr int64_t kColumns = kBeyond / 2;
  const NDArray x = zeros({2, kColumns}, u8);
  x[{1, kColumns - 1}] = 7;
  const NDArray turned = x.transpose().to_contiguous();
  EXPECT_EQ(7, turned[kColumns - 1][1].item<uint8_t>());
  EXPECT_EQ(7, sum(turned).item<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{0, 7}), sum(x, 1).to_vector<int64_t>());
}

// Zip archives need other records for sizes beyond 32 bits.
TEST_F(LargeSize, ArchivesOfMoreThanFourGibibytes) {
  constexpr int64_t kBytes = (int64_t{1} << 32) + 1000;
  const test::TempFolder folder;
  if (available_gib() < 16) GTEST_SKIP() << "needs 16 GiB of memory, there are " << available_gib();
  if (std::filesystem::space(folder.path()).available < 2 * static_cast<uint64_t>(kBytes))
    GTEST_SKIP() << "needs 9 GB in " << folder.path();
  {
    const NDArray large = zeros({kBytes}, u8);
    large[kBytes - 1] = 7;
    large[kBytes / 2] = 9;
    save_npz(folder / "x.npz", {{"large", large}, {"behind", full({1}, 2.5f)}});
  }
  for (const auto& [name, array] : load_npz(folder / "x.npz")) {
    if (name == "behind") {
      EXPECT_EQ(2.5f, array.item<float>());
      continue;
    }
    EXPECT_EQ("large", name);
    ASSERT_EQ(kBytes, array.numel());
    EXPECT_EQ(7, array[kBytes - 1].item<uint8_t>());
    EXPECT_EQ(9, array[kBytes / 2].item<uint8_t>());
    EXPECT_EQ(16, sum(array).item<int64_t>());
  }
}

}  // namespace
}  // namespace mx
