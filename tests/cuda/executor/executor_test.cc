// The executor reports each mutant of a kernel. Races are reported by ThreadSanitizer, accesses beyond an
// array by AddressSanitizer; the rest is reported in every build.
#include "tests/cuda/executor/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/executor/mutants.h"
#include "tests/support/errors.h"

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kFindsRaces = true;
#else
constexpr bool kFindsRaces = false;
#endif

namespace mx::test {
namespace {

constexpr int64_t kRows = 5;

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

struct Sums {
  std::vector<float> sums;
  int32_t total = 0;
  bool operator==(const Sums&) const = default;
};

/// The sums of rows whose elements are small integers, so they are exact.
Sums sums_of(Mutant mutant, int64_t n) {
  const std::unique_ptr<float, FreeDeleter> x(
      static_cast<float*>(std::aligned_alloc(16, static_cast<size_t>(kRows * n) * sizeof(float))));
  for (int64_t i = 0; i < kRows * n; ++i) x.get()[i] = static_cast<float>(i % 7);
  Sums result{std::vector<float>(kRows, -1), 0};
  row_sums(mutant, x.get(), kRows, n, result.sums.data(), &result.total);
  return result;
}

Sums expected_sums(int64_t n) {
  Sums result{std::vector<float>(kRows, 0), kRows};
  for (int64_t i = 0; i < kRows * n; ++i)
    result.sums[static_cast<size_t>(i / n)] += static_cast<float>(i % 7);
  return result;
}

class CudaExecutor : public ::testing::Test {
 protected:
  ~CudaExecutor() override { executor_options() = {}; }

  template <class F>
  static void in_every_order(const F& f) {
    for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse}) {
      executor_options() = {order, 1};
      f();
    }
    for (const uint64_t seed : {1, 2, 3}) {
      executor_options() = {ThreadOrder::shuffled, seed};
      f();
    }
  }
  /// Returns the message of the fault; empty if there was none.
  static std::string fault_of(Mutant mutant, int64_t n) {
    try {
      sums_of(mutant, n);
    } catch (const KernelFault& fault) {
      return fault.what();
    }
    return "";
  }
};

TEST_F(CudaExecutor, ACorrectKernelHasItsResultInEveryOrder) {
  for (const int64_t n : kFindsRaces ? std::vector<int64_t>{512} : std::vector<int64_t>{4, 64, 512, 1024})
    in_every_order([&] { EXPECT_EQ(expected_sums(n), sums_of(Mutant::none, n)) << n; });
}

TEST_F(CudaExecutor, AnExitBeforeABarrierIsAFault) {
  in_every_order([] { EXPECT_NE("", fault_of(Mutant::early_exit, 256)); });
  // Whole warps end here, and a part of a warp below.
  EXPECT_TRUE(contains(fault_of(Mutant::early_exit, 256), "that have ended"));
  EXPECT_TRUE(contains(fault_of(Mutant::early_exit, 64), "has ended"));
}

TEST_F(CudaExecutor, AnOperationOfAWarpThatOnlySomeLanesMakeIsAFault) {
  in_every_order([] { EXPECT_NE("", fault_of(Mutant::wrong_mask, 512)); });
}

TEST_F(CudaExecutor, ThreadsAtTwoBarriersAreAFault) {
  in_every_order([] { EXPECT_TRUE(contains(fault_of(Mutant::split_barrier, 512), "at one barrier")); });
}

TEST_F(CudaExecutor, AMisalignedVectorIsAFault) {
  EXPECT_TRUE(contains(fault_of(Mutant::misaligned, 512), "multiple of 16"));
}

TEST_F(CudaExecutor, UnsetSharedMemoryIsNaN) {
  in_every_order([] { EXPECT_TRUE(std::isnan(sums_of(Mutant::unset_shared, 512).sums[0])); });
}

TEST_F(CudaExecutor, AMissingBarrierChangesTheResultInSomeOrder) {
  if (kFindsRaces) GTEST_SKIP() << "ThreadSanitizer reports the race: see below";
  int wrong = 0;
  in_every_order([&] { wrong += !(expected_sums(512) == sums_of(Mutant::missing_barrier, 512)); });
  EXPECT_GT(wrong, 0);
}

using CudaExecutorDeathTest = CudaExecutor;

TEST_F(CudaExecutorDeathTest, AddressSanitizerReportsAnAccessBeyondTheEnd) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs AddressSanitizer";
  EXPECT_DEATH(sums_of(Mutant::off_by_one, 512), "heap-buffer-overflow");
}

TEST_F(CudaExecutorDeathTest, ThreadSanitizerReportsRaces) {
  if (!kFindsRaces) GTEST_SKIP() << "needs ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((sums_of(Mutant::missing_barrier, 512), std::exit(0)), "data race");
  // The result is right in every order, but on a GPU the blocks run at once.
  EXPECT_DEATH((sums_of(Mutant::across_blocks, 512), std::exit(0)), "data race");
  EXPECT_DEATH((sums_of(Mutant::other_barrier, 512), std::exit(0)), "data race");
}

TEST_F(CudaExecutor, ABadLaunchIsAFault) {
  EXPECT_THROW(row_sums(Mutant::none, nullptr, 0, 4, nullptr, nullptr), KernelFault);
}

}  // namespace
}  // namespace mx::test
