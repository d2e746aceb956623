// Products by cuBLASLt over a fake of its device half: random shapes, types, strides and batches, compared
// with the kernels of the CPU. kernels_test.cc adds the samples of the operators.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "operators/cuda/blas.h"
#include "operators/cuda/convolution.h"
#include "tests/cuda/executor/fake_cublaslt.h"
#include "tests/cuda/executor/kernels_on_host.h"
#include "tests/operators/registry_support.h"

namespace mx::test {
namespace {

// Also for the tests of kernels_test.cc.
class WithFakeCublasLt : public ::testing::Environment {
  void SetUp() override { install_fake_cublaslt(); }
};
[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new WithFakeCublasLt);

class FakeBlas : public ::testing::Test {
 protected:
  FakeBlas() { fake_cublaslt() = {}; }
  ~FakeBlas() override { fake_cublaslt() = {}; }
};

/// Memory of numbers in some type.
struct Numbers {
  DType type;
  std::vector<double> bytes;  // aligned for every type
  Numbers(DType dtype, int64_t count, std::mt19937& random)
      : type(dtype), bytes(static_cast<size_t>(count) + 1) {
    std::uniform_int_distribution<int> value(-8, 8);
    for (int64_t i = 0; i < count; ++i) set(i, value(random) / 4.);
  }
  void set(int64_t i, double x) {
    visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      reinterpret_cast<T*>(bytes.data())[i] = static_cast<T>(static_cast<float>(x));
    });
  }
  double get(int64_t i) const {
    return visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return static_cast<double>(reinterpret_cast<const T*>(bytes.data())[i]);
    });
  }
};

// The numbers are small multiples of 1/4, so all sums are exact in f32 and f64; f16 and bf16 round once.
void expect_random_product(std::mt19937& random, bool from_library) {
  const auto from = [&](int low, int high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const DType types[] = {f32, f64, f16, bf16};
  const DType in = types[from(0, 3)], out = in == f64 || from(0, 1) == 0 ? in : f32;
  const int64_t m = from(1, 7), n = from(1, 7), k = from(1, 9), outer = from(1, 3), inner = from(1, 3);
  const auto strides = [&](int64_t rows, int64_t columns, bool transposed, int64_t gap) {
    return transposed ? std::pair{int64_t{1}, rows + gap} : std::pair{columns + gap, int64_t{1}};
  };
  const auto [ar, ac] = strides(m, k, from(0, 1) != 0, from(0, 2));
  const auto [br, bc] = strides(k, n, from(0, 1) != 0, from(0, 2));
  const int64_t c_row = n + from(0, 2), matrix = 11 * 11;
  const bool shared = from(0, 2) == 0;  // one B for all
  const kernels::BatchDim batch[] = {{outer, 3 * matrix, shared ? 0 : matrix, 3 * matrix},
                                     {inner, matrix, shared ? 0 : 3 * matrix, matrix}};
  const Numbers a(in, 9 * matrix, random), b(in, 12 * matrix, random), bias(out, 2 * n, random);
  Numbers c(out, 9 * matrix, random), expected = c;
  cuda::Product p;
  p.in = in;
  p.out = out;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = {a.bytes.data(), ar, ac};
  p.b = {b.bytes.data(), br, bc};
  p.c = c.bytes.data();
  p.c_row_stride = c_row;
  if (from(0, 2) != 0) p.batch = batch;
  p.alpha = from(0, 1) == 0 ? 1 : 0.5;
  if (from(0, 2) == 0) p.beta = p.batch.empty() || from_library ? 2 : 0;
  if (from(0, 1) == 0) {
    p.bias = bias.bytes.data();
    p.bias_stride = from(1, 2);
  }
  cuda::multiply({}, p);
  for (int64_t x = 0; x < (p.batch.empty() ? 1 : outer); ++x)
    for (int64_t y = 0; y < (p.batch.empty() ? 1 : inner); ++y)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          const int64_t bs = shared ? 0 : x * matrix + y * 3 * matrix;
          for (int64_t q = 0; q < k; ++q)
            sum += a.get((x * 3 + y) * matrix + i * ar + q * ac) * b.get(bs + q * br + j * bc);
          const int64_t at = (x * 3 + y) * matrix + i * c_row + j;
          sum *= p.alpha;
          if (p.beta != 0) sum += p.beta * expected.get(at);
          if (p.bias != nullptr) sum += bias.get(j * p.bias_stride);
          expected.set(at, sum);
        }
  for (int64_t i = 0; i < 9 * matrix; ++i) {
    // With a bias that is added before the product, f16 and bf16 round twice.
    const double tolerance = out == f16 ? 0.004 : out == bf16 ? 0.03 : 0;
    ASSERT_LE(std::abs(expected.get(i) - c.get(i)), tolerance * (1 + std::abs(expected.get(i))))
        << "element " << i << " of " << to_string(in) << " to " << to_string(out) << ", m " << m << ", n "
        << n << ", k " << k;
  }
}

TEST_F(FakeBlas, RandomProductsAreThoseOfPlainLoops) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    expect_random_product(random, true);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(fake_cublaslt().products, 500);
}

TEST_F(FakeBlas, ABiasThatNoAlgorithmAddsIsAddedBefore) {
  fake_cublaslt().refuse_bias = true;
  std::mt19937 random(2);
  for (int i = 0; i < 100 && !HasFatalFailure(); ++i) expect_random_product(random, true);
  EXPECT_GE(fake_cublaslt().products, 100);
}

TEST_F(FakeBlas, WithoutAnAlgorithmThePlainKernelComputes) {
  fake_cublaslt().refuse_all = true;
  std::mt19937 random(3);
  for (int i = 0; i < 100 && !HasFatalFailure(); ++i) expect_random_product(random, false);
}

TEST_F(FakeBlas, AnAlgorithmIsAskedForOncePerProblem) {
  std::mt19937 random(4);
  const Numbers a(f32, 37 * 41, random), b(f32, 41 * 43, random);
  Numbers c(f32, 37 * 43, random);
  cuda::Product p;
  p.m = 37;
  p.n = 43;
  p.k = 41;
  p.a = {a.bytes.data(), 41, 1};
  p.b = {b.bytes.data(), 43, 1};
  p.c = c.bytes.data();
  p.c_row_stride = 43;
  for (int i = 0; i < 3; ++i) cuda::multiply({}, p);
  EXPECT_EQ(1, fake_cublaslt().heuristics);
  EXPECT_EQ(3, fake_cublaslt().products);
}

// The samples take one way or the other by their shapes; here they take both.
TEST_F(FakeBlas, BothMethodsOfConvolutionsGiveTheResultsOfTheCpu) {
  EngineOptions options;
  options.mode = EngineMode::naive;
  Engine engine(options);
  const EngineScope scope(engine);
  for (const auto method : {cuda::ConvolutionMethod::direct, cuda::ConvolutionMethod::products}) {
    cuda::set_convolution_method(method);
    const int64_t before = fake_cublaslt().products;
    for (const char* name : {"convolution", "convolution_transpose", "convolution_weights"}) {
      const Operator& op = *find_operator(name);
      Operator twin = op;
      twin.kernel.cpu = kernels_on_host().at(name);
      for (const Sample& sample : samples_of(op))
        for (const DType type : {f32, f64}) {
          const Sample typed = as_dtype(op, sample, type);
          SCOPED_TRACE(label(op, typed));
          const NDArray expected = call(op, typed.attrs, typed.inputs)[0],
                        got = call(twin, typed.attrs, typed.inputs)[0];
          const auto x = expected.to(f64).to_vector<double>(), y = got.to(f64).to_vector<double>();
          ASSERT_EQ(x.size(), y.size());
          for (size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(x[i], y[i], (type == f64 ? 1e-12 : 1e-4) * (1 + std::abs(x[i])));
        }
    }
    if (method == cuda::ConvolutionMethod::products) {
      EXPECT_GT(fake_cublaslt().products, before);
    } else {
      EXPECT_EQ(fake_cublaslt().products, before);
    }
  }
  cuda::set_convolution_method(cuda::ConvolutionMethod::automatic);
}

}  // namespace
}  // namespace mx::test
