// Products by the fake of cuBLASLt on the stand-in for CUDA: what the library may do while a thread captures.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "engine/device/registry.h"
#include "operators/cuda/blas.h"
#include "operators/cuda/cuda_library.h"
#include "tests/cuda/executor/fake_cublaslt.h"
#include "tests/cuda/fake/fake_cuda.h"

namespace mx::cuda {
// Stands for the plain kernel, for which no product here has a need.
void multiply_plainly(const KernelArgs&, const Product&) { ADD_FAILURE() << "a product without the library"; }
}  // namespace mx::cuda

namespace mx::test {
namespace {

void enqueue(void* stream, std::function<void()> work) {
  fake_cuda::launch(nullptr, dim3(1), dim3(1), 0, static_cast<cudaStream_t>(stream),
                    [work = std::move(work)] {
                      work();
                      return true;
                    });
}

// The process has neither made a handle nor asked for an algorithm before.
TEST(BlasOnFake, AProductMayBeTheFirstOneInACapture) {
  install_fake_cublaslt();
  fake_cublaslt().enqueue = enqueue;
  Device& device = get_device(gpu(0));
  constexpr int64_t n = 3;
  float* const memory = static_cast<float*>(device.allocate(3 * n * n * sizeof(float), nullptr));
  float *const a = memory, *const b = a + n * n, *const c = b + n * n;  // the stand-in's memory is the host's
  std::fill_n(a, 2 * n * n, 2.F);
  std::fill_n(c, n * n, -1.F);
  const auto builder = device.new_graph_builder();
  builder->add({}, [&](Stream& stream) {
    stream.submit([&](KernelContext& context) {
      cuda::Product p;
      p.m = p.n = p.k = n;
      p.a = {a, n, 1};
      p.b = {b, n, 1};
      p.c = c;
      p.c_row_stride = n;
      KernelArgs args;
      args.device = &context;
      args.stream = &stream;
      cuda::multiply(args, p);
    });
  });
  const auto graph = builder->finish();
  EXPECT_EQ(1, fake_cublaslt().products);
  EXPECT_EQ(-1.F, c[0]) << "the product was not captured";
  const auto stream = device.new_stream();
  graph->launch(*stream);
  stream->synchronize();
  EXPECT_EQ(n * n, std::count(c, c + n * n, 4.F * n));
  EXPECT_EQ(1, fake_cublaslt().products) << "the graph has called the library";
  device.free(memory, nullptr);
  fake_cublaslt() = {};
}

TEST(CudaLibraries, AreLookedForInEachFolderOfTheList) {
  Dl_info info{};
  ASSERT_NE(0, dladdr(reinterpret_cast<void*>(&strerror_r), &info));
  std::string folder = ::testing::TempDir() + "cuda_libraries_XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder.data()));
  ASSERT_EQ(0, symlink(info.dli_fname, (folder + "/libmx_of_a_test.so").c_str()));
  const auto loads = [](const std::string& folders) {
    setenv("MX_CUDA_LIBRARIES", folders.c_str(), 1);
    try {
      const cuda::CudaLibrary library("test", "libmx_of_a_test.so");
      return true;
    } catch (const DeviceError&) {
      return false;
    }
  };
  EXPECT_TRUE(loads(folder));
  EXPECT_TRUE(loads("/none:" + folder));
  EXPECT_TRUE(loads(folder + ":/none"));
  EXPECT_FALSE(loads("/none"));
  EXPECT_FALSE(loads(""));
  unsetenv("MX_CUDA_LIBRARIES");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mx::test
