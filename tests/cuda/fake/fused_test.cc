// Fused kernels on the stand-in for CUDA: g++ compiles the emitted text, and the values are compared with the
// kernels of the single operators, which the executor runs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "operators/cuda/nvrtc.h"
#include "operators/fused.h"
#include "operators/operators.h"
#include "tests/cuda/fused/expressions.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

std::atomic<int> compilations{0};
std::string counted_compiler(const std::string& source, int architecture) {
  ++compilations;
  EXPECT_EQ(90, architecture);
  return compile_on_host(source, architecture);
}

class FusedOnFake : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("MX_KERNEL_CACHE", "", 1);
    cuda::replace_compiler(counted_compiler);
  }
  void TearDown() override { cuda::replace_compiler(nullptr); }
};

/// The elements as bytes, one NaN like the other.
std::vector<uint64_t> bits_of(const NDArray& array) {
  const NDArray a = array.to(cpu());
  std::vector<uint64_t> bits;
  visit(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<T> values = a.to_vector<T>();
    for (const T value : values) {
      uint64_t own = 0;
      std::memcpy(&own, &value, sizeof value);
      if constexpr (!std::is_integral_v<T>) {
        if (static_cast<double>(value) != static_cast<double>(value)) own = UINT64_MAX;
      }
      bits.push_back(own);
    }
  });
  return bits;
}

std::vector<NDArray> on_gpu(const std::vector<NDArray>& inputs) {
  std::vector<NDArray> moved;
  for (const NDArray& x : inputs) {
    // Moved as a whole and then viewed again, so that the view keeps its strides.
    moved.push_back(x.to(gpu(0)));
  }
  return moved;
}

TEST_F(FusedOnFake, RandomExpressionsHaveTheBitsOfTheirOperators) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Fused f = random_expression(seed, 8);
    for (const bool flat : {true, false}) {
      const std::vector<NDArray> inputs = on_gpu(random_inputs(f, seed, flat));
      const NDArray got = f(inputs), expected = f.unfused(inputs);
      ASSERT_EQ(expected.shape(), got.shape());
      ASSERT_EQ(expected.dtype(), got.dtype());
      ASSERT_EQ(bits_of(expected), bits_of(got)) << "seed " << seed << "\n"
                                                 << f.source().substr(f.source().rfind("element("));
    }
  }
}

Fused sum_of_two(DType type) {
  FusedBuilder b({type, type});
  return b.build(b.op("add", {b.input(0), b.input(1)}));
}

TEST_F(FusedOnFake, LayoutsOfGpuMemory) {
  const Fused f = sum_of_two(f32);
  const auto values = [](int64_t n) { return arange(n, f32).to(gpu(0)); };
  const auto check = [&](const NDArray& x, const NDArray& y) {
    EXPECT_EQ(bits_of(x + y), bits_of(f({x, y}))) << x.shape() << y.shape();
  };
  check(values(7), values(7));                                                // not a multiple of four
  check(values(8).slice(0, {1, 8}), values(7));                               // not aligned for four at once
  check(values(12).reshape({3, 4}).transpose(), values(12).reshape({4, 3}));  // turned
  check(values(12).reshape({3, 4}).slice(1, {{}, {}, 2}), values(2));
  check(values(5).slice(0, {{}, {}, -1}), values(5));
  check(values(24).reshape({2, 3, 4}), values(4).reshape({1, 1, 4}));
  check(values(1), values(1).reshape({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  check(values(0), values(1));
  check(values(300'000), values(1));
}

TEST_F(FusedOnFake, EqualExpressionsAreCompiledOnce) {
  const int before = compilations;
  const NDArray x = arange(5, f64).to(gpu(0));
  for (int i = 0; i < 3; ++i) (void)sum_of_two(f64)({x, x}).to(cpu()).to_vector<double>();
  EXPECT_EQ(before + 1, compilations);
}

TEST_F(FusedOnFake, ThreadsMayCallEqualAndDifferentExpressionsAtOnce) {
  const int before = compilations;
  const Fused shared = sum_of_two(u8);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        FusedBuilder b({i32});
        const auto scaled = b.op("mul", {b.input(0), b.number(100 + i % 3, i32)});
        const Fused own = b.build(scaled);
        const NDArray x = arange(4, i32).to(gpu(t % 2)), y = arange(4, u8).to(gpu(t % 2));
        wrong += own({x}).to(cpu()).to_vector<int32_t>()[3] != 3 * (100 + i % 3);
        wrong += shared({y, y}).to(cpu()).to_vector<uint8_t>()[3] != 6;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, wrong);
  EXPECT_EQ(before + 4, compilations);
}

TEST_F(FusedOnFake, ATextThatDoesNotCompileFailsTheOperation) {
  cuda::replace_compiler([](const std::string&, int) -> std::string { throw DeviceError("[nvrtc] no"); });
  const NDArray x = arange(5, i64).to(gpu(0));
  const NDArray y = sum_of_two(i64)({x, x});
  EXPECT_TRUE(contains(error_of<DeviceError>([&] { y.wait(); }), "[nvrtc] no"));
  EXPECT_THROW(wait_all(), DeviceError);
  cuda::replace_compiler(counted_compiler);
  EXPECT_EQ((std::vector<int64_t>{0, 2, 4, 6, 8}), sum_of_two(i64)({x, x}).to(cpu()).to_vector<int64_t>());
}

TEST_F(FusedOnFake, ItCanBeCapturedInASegment) {
  const Fused f = sum_of_two(i32);
  NDArray x = arange(5, i32).to(gpu(0)), y = zeros({5}, i32, gpu(0));
  y.wait();
  x.wait();
  Segment segment = current_engine().record([&] { y.copy_from(f({x, y})); });
  for (int i = 0; i < 4; ++i) segment.replay();
  EXPECT_EQ((std::vector<int32_t>{0, 4, 8, 12, 16}), y.to(cpu()).to_vector<int32_t>());
}

// In a process of its own, where no kernel has been loaded. Returns the number of compilations.
int compilations_in_fresh_process(const std::string& folder) {
  ::setenv("MX_KERNEL_CACHE", folder.c_str(), 1);
  const NDArray x = arange(5, f32).to(gpu(0));
  FusedBuilder b({f32});
  const Fused f = b.build(b.op("square", {b.op("neg", {b.input(0)})}));
  const bool right = f({x}).to(cpu()).to_vector<float>() == std::vector<float>{0, 1, 4, 9, 16};
  return right ? 100 + compilations : 0;
}

TEST_F(FusedOnFake, OtherProcessesFindTheMachineCodeOnDisk) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  namespace fs = std::filesystem;
  // The child runs this test again up to its own statement, so the name must not depend on the process.
  const std::string folder = fs::temp_directory_path() / "mx_fused_cache_test";
  const bool parent = ::testing::internal::InDeathTestChild() == false;
  if (parent) fs::remove_all(folder);
  const auto run = [&] {
    compilations = 0;
    std::_Exit(compilations_in_fresh_process(folder));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(101), "");  // compiles
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(100), "");  // finds it
  if (parent) {
    for (const auto& entry : fs::directory_iterator(folder)) fs::resize_file(entry.path(), 1000);
  }
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(101), "");  // the file is truncated
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(100), "");  // and was replaced
  if (parent) fs::remove_all(folder);
}

}  // namespace
}  // namespace mx::test
