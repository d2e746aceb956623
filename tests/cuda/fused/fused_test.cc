// Fused expressions: errors, values on the CPU, gradients, the emitted text with NVRTC, and the cache on
// disk. Values of the kernel: tests/cuda/fake/fused_test.cc.
#include "operators/fused.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "engine/base/error.h"
#include "executor/autograd/autograd.h"
#include "operators/cuda/image_cache.h"
#include "operators/cuda/nvrtc.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"
#include "operators/operators.h"
#include "tests/cuda/fused/expressions.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

namespace fs = std::filesystem;

/// tanh(x * 2 + y)
Fused small_expression(DType type = f32) {
  FusedBuilder b({type, type});
  const auto twice = b.op("mul", {b.input(0), b.number(2, type)});
  return b.build(b.op("tanh", {b.op("add", {twice, b.input(1)})}));
}

TEST(Fused, OnTheCpuItIsTheOperatorsOneAfterAnother) {
  for (const DType type : {f32, f64, f16, bf16}) {
    const Fused f = small_expression(type);
    const NDArray x = arange(-6, 6, 1, f32).reshape({3, 4}).to(type), y = arange(4, f32).to(type);
    const NDArray expected = tanh(add(mul(x, full({}, 2, type)), y));
    const NDArray got = f({x, y});
    EXPECT_EQ(type, got.dtype());
    EXPECT_EQ(expected.to(f64).to_vector<double>(), got.to(f64).to_vector<double>());
  }
}

TEST(Fused, GradientsFlowThroughIt) {
  NDArray x = arange(-1, 1, 0.25, f32), y = ones({8});
  x.requires_grad_();
  small_expression()({x, y}).sum().backward();
  const NDArray z = arange(-1, 1, 0.25, f32).requires_grad_();
  tanh(z * 2.f + y).sum().backward();
  EXPECT_EQ(z.grad().to_vector<float>(), x.grad().to_vector<float>());
}

TEST(Fused, ErrorsNameWhatWasExpected) {
  FusedBuilder b({f32, i32, bool_}), other({f32});
  const auto x = b.input(0), n = b.input(1), c = b.input(2);
  const auto refusal = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(refusal([&] { b.input(3); }), "below 3, got 3"));
  EXPECT_TRUE(contains(refusal([&] { b.op("softmax", {x}); }), "'softmax'"));
  EXPECT_TRUE(contains(refusal([&] { b.op("add", {x, n}); }), "got f32 and i32"));
  EXPECT_TRUE(contains(refusal([&] { b.op("tanh", {x, x}); }), "expected 1 operands of tanh, got 2"));
  EXPECT_TRUE(contains(refusal([&] { b.op("where", {x, x, x}); }), "condition of bool, got f32"));
  EXPECT_TRUE(contains(refusal([&] { b.op("bitwise_and", {x, x}); }), "bitwise_and"));
  EXPECT_TRUE(contains(refusal([&] { b.op("tanh", {other.input(0)}); }), "another builder"));
  EXPECT_TRUE(contains(refusal([&] { b.cast({}, f32); }), "an empty one"));
  EXPECT_TRUE(contains(refusal([&] { b.number(300, u8); }), "fits u8"));
  EXPECT_TRUE(contains(refusal([&] { b.build(b.number(1, f32)); }), "depends on an input"));
  EXPECT_TRUE(contains(refusal([] { FusedBuilder none({}); }), "1 to 16 inputs"));
  const Fused f = b.build(b.op("where", {c, x, x}));
  const NDArray floats = ones({3}), truth = ones({3}, bool_), numbers = ones({3}, i32);
  EXPECT_TRUE(contains(refusal([&] { f({floats, numbers}); }), "expected 3 inputs, got 2"));
  EXPECT_TRUE(contains(refusal([&] { f({floats, floats, truth}); }), "elements of i32 in input 1, got f32"));
  EXPECT_TRUE(contains(refusal([&] { f({ones({4}), numbers, truth}); }), "(4,)"));
  EXPECT_NO_THROW(f({floats, ones({7}, i32), truth}).wait());  // the result does not depend on it
}

TEST(Fused, EqualExpressionsHaveEqualTexts) {
  EXPECT_EQ(small_expression().source(), small_expression().source());
  EXPECT_NE(small_expression().source(), small_expression(f64).source());
  EXPECT_FALSE(contains(small_expression().source(), "#include"));
}

TEST(Fused, TheRandomExpressionsOfTheTestsHaveEveryOperation) {
  std::string all;
  for (uint64_t seed = 0; seed < 20; ++seed) all += random_expression(seed, 8).source();
  const auto has = [&](const char* kind, const char* name) {
    EXPECT_TRUE(contains(all, std::string(kind) + name + ">(")) << name;
  };
  for (int i = 1; i < kernels::kUnaryOps; ++i)
    has("UnaryOp::", kernels::to_string(static_cast<kernels::UnaryOp>(i)));
  for (int i = 0; i < kernels::kBinaryOps; ++i)
    has("BinaryOp::", kernels::to_string(static_cast<kernels::BinaryOp>(i)));
}

class FusedText : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ::setenv("MX_CUDA_LIBRARIES", MX_CUDA_LIBRARY_FOLDER, 0);
    try {
      (void)cuda::compiler_identity();
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_P(FusedText, RandomExpressionsCompileWithNvrtc) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Fused f = random_expression(seed, 8);
    std::string image;
    ASSERT_NO_THROW(image = cuda::compile(f.source(), GetParam())) << seed;
    EXPECT_EQ("\177ELF", image.substr(0, 4));
    EXPECT_TRUE(contains(image, "mx_fused"));
  }
}

// One rounding instead of two would give other bits than the two operators.
TEST_P(FusedText, AProductAndASumOfTwoOperationsAreNotJoined) {
  for (const DType type : {f32, f64}) {
    FusedBuilder b({type, type});
    const Fused f = b.build(b.op("add", {b.op("mul", {b.input(0), b.input(1)}), b.input(1)}));
    const std::string text = cuda::assembly(f.source(), GetParam());
    const std::string suffix = type == f32 ? ".f32" : ".f64";
    EXPECT_TRUE(contains(text, "mul.rn" + suffix) || contains(text, "mul" + suffix));
    EXPECT_FALSE(contains(text, "fma.rn" + suffix));
  }
}

TEST_P(FusedText, ElementsInOrderAreReadAndWrittenByFours) {
  const std::string text = cuda::assembly(small_expression().source(), GetParam());
  EXPECT_TRUE(contains(text, "ld.global.v4.f32")) << text;
  EXPECT_TRUE(contains(text, "st.global.v4.f32"));
  EXPECT_FALSE(contains(text, "__local_depot")) << "arguments are copied to memory of the thread";
}

TEST_P(FusedText, ATextThatDoesNotCompileGivesTheMessagesOfTheCompiler) {
  const std::string message =
      error_of<DeviceError>([] { cuda::compile("int x = unknown_name;", GetParam()); });
  EXPECT_TRUE(contains(message, "unknown_name")) << message;
}

INSTANTIATE_TEST_SUITE_P(Architectures, FusedText, ::testing::Values(80, 90));

class ImageCache : public ::testing::Test {
 protected:
  ImageCache() {
    char name[] = "/tmp/mx_image_cache_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ImageCache() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }

  std::string folder_;
  const std::string key_ = "sm_90\nsome text";
  const std::string image_ = "\177ELF" + std::string(3, '\0') + std::string(500, 'x');
};

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}
void replace_content(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST_F(ImageCache, GivesBackWhatWasStoredForTheKey) {
  EXPECT_EQ(std::nullopt, cuda::cached_image(folder_, key_));
  cuda::cache_image(folder_, key_, image_);
  EXPECT_EQ(image_, cuda::cached_image(folder_, key_));
  EXPECT_EQ(std::nullopt, cuda::cached_image(folder_, key_ + " "));
  cuda::cache_image(folder_, key_, "other");
  EXPECT_EQ("other", cuda::cached_image(folder_, key_));
  EXPECT_EQ(1u, files().size());
  cuda::cache_image(folder_ + "/deeper/folder", key_, image_);
  EXPECT_EQ(image_, cuda::cached_image(folder_ + "/deeper/folder", key_));
}

TEST_F(ImageCache, TruncatedChangedAndForeignFilesCountAsMissingAndAreReplaced) {
  cuda::cache_image(folder_, key_, image_);
  const fs::path file = files().at(0);
  const std::string whole = content_of(file);
  for (size_t bytes = 0; bytes < whole.size(); bytes += bytes < 50 ? 1 : 17) {
    replace_content(file, whole.substr(0, bytes));
    ASSERT_EQ(std::nullopt, cuda::cached_image(folder_, key_)) << bytes;
  }
  for (size_t place = 0; place < whole.size(); place += place < 50 ? 1 : 17) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    replace_content(file, changed);
    ASSERT_EQ(std::nullopt, cuda::cached_image(folder_, key_)) << place;
  }
  for (const std::string& other : {whole + "x", std::string(10'000, '\xff'), std::string("text\n")}) {
    replace_content(file, other);
    EXPECT_EQ(std::nullopt, cuda::cached_image(folder_, key_));
  }
  // A file with the hash of another key.
  cuda::cache_image(folder_, "another key", image_);
  for (const fs::path& path : files())
    if (path != file) fs::copy_file(path, file, fs::copy_options::overwrite_existing);
  EXPECT_EQ(std::nullopt, cuda::cached_image(folder_, key_));
  cuda::cache_image(folder_, key_, image_);
  EXPECT_EQ(image_, cuda::cached_image(folder_, key_));
}

TEST_F(ImageCache, AFolderThatCannotBeWrittenIsNoError) {
  const std::string file = folder_ + "/file";
  replace_content(file, "x");
  for (const std::string& folder : {file, file + "/below", std::string("/proc/mx_kernels"), std::string()}) {
    cuda::cache_image(folder, key_, image_);
    EXPECT_EQ(std::nullopt, cuda::cached_image(folder, key_)) << folder;
  }
  // The entry's place is taken by a folder.
  cuda::cache_image(folder_ + "/kernels", key_, image_);
  const fs::path entry = fs::directory_iterator(folder_ + "/kernels")->path();
  fs::remove(entry);
  fs::create_directories(entry / "x");
  cuda::cache_image(folder_ + "/kernels", key_, image_);
  EXPECT_EQ(std::nullopt, cuda::cached_image(folder_ + "/kernels", key_));
  EXPECT_EQ(1, std::distance(fs::directory_iterator(folder_ + "/kernels"), fs::directory_iterator()));
}

TEST_F(ImageCache, ProcessesThatWriteOneEntryLeaveAWholeOne) {
  std::vector<pid_t> children;
  for (int child = 0; child < 6; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const std::string mine(50'000 + static_cast<size_t>(child), static_cast<char>('a' + child));
      bool right = true;
      for (int i = 0; i < 100; ++i) {
        cuda::cache_image(folder_, key_, mine);
        const std::optional<std::string> got = cuda::cached_image(folder_, key_);
        right = right && got.has_value() && got->size() == 50'000 + static_cast<size_t>(got->at(0) - 'a') &&
                got->find_first_not_of(got->at(0)) == std::string::npos;
      }
      std::_Exit(right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);
  }
  EXPECT_EQ(1u, files().size());
}

TEST_F(ImageCache, TheFolderFollowsTheEnvironment) {
  ::setenv("MX_KERNEL_CACHE", "/a", 1);
  EXPECT_EQ("/a", cuda::image_folder());
  ::setenv("MX_KERNEL_CACHE", "", 1);
  EXPECT_EQ("", cuda::image_folder());
  ::unsetenv("MX_KERNEL_CACHE");
  ::setenv("XDG_CACHE_HOME", "/b", 1);
  EXPECT_EQ("/b/mxrun/kernels", cuda::image_folder());
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/c", 1);
  EXPECT_EQ("/c/.cache/mxrun/kernels", cuda::image_folder());
}

}  // namespace
}  // namespace mx::test
