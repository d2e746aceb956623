// The CUDA kernels of Fourier transforms, of linear algebra, of the CTC loss and of interpolation with sizes
// that the samples do not have.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "operators/ctc.h"
#include "operators/elementwise_binary.h"
#include "operators/fft_attrs.h"
#include "operators/linalg_records.h"
#include "operators/matmul.h"
#include "operators/resample_attrs.h"
#include "operators/softmax.h"
#include "operators/unfold.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaTransformSizes = SizesTest;

/// Returns the first output of the kernel, as numbers.
std::vector<double> values_of(const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs) {
  return call(on_host(*find_operator(name)), attrs, inputs)[0].to(f64).to_vector<double>();
}

TEST_F(CudaTransformSizes, FourierTransforms) {
  // Every radix, their products, primes beyond them, and powers of two.
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 29, 31, 37, 60, 64, 74, 128, 210, 341}) {
    if (kThreadSanitizer && n > 4) break;
    for (const DType type : {f32, f64}) {
      expect_same("fft", detail::FourierAttrs{-1, false, 1}, {numbers({2, n, 2}).to(type)});
      expect_same("fft", detail::FourierAttrs{0, true, 0.25}, {numbers({n, 2}).to(type)});
      expect_same("rfft", detail::RealFourierAttrs{-1, 1}, {numbers({3, n}).to(type)});
      expect_same("irfft", detail::ToRealAttrs{-1, n, 1}, {numbers({2, n / 2 + 1, 2}).to(type)});
    }
  }
  expect_same("fft", detail::FourierAttrs{1, false, 1}, {zeros({0, 5, 2})});
}

NDArray positive_definite(const Shape& shape) {
  const NDArray a = Generator(4).normal(0, 1, shape);
  return matmul(a, a.swap_axes(-2, -1)) + eye(shape[-1]) * 2;
}

TEST_F(CudaTransformSizes, LinearAlgebra) {
  for (const int64_t n : {1, 2, 17, 40}) {
    if (kThreadSanitizer && n > 2) break;
    const NDArray a = (numbers({3, n, n}) + eye(n) * 3).to(f64);
    expect_same("linalg_solve", {}, {a, numbers({2, 1, n, 5}).to(f64)});
    expect_same("linalg_inv", {}, {a});
    expect_same("linalg_det", {}, {a});
    expect_same("linalg_slogdet", {}, {a});
    expect_same("linalg_lu_factor", {}, {a});
    for (const bool upper : {false, true}) {
      expect_same("linalg_cholesky", detail::SymmetricAttrs{upper}, {positive_definite({2, n, n}).to(f64)});
      for (const bool unit : {false, true})
        expect_same("linalg_solve_triangular", detail::TriangularAttrs{upper, unit},
                    {a * 0.1 + eye(n).to(f64), numbers({n, 2}).to(f64)});
    }
  }
  for (const Shape& shape : {Shape{4, 9}, Shape{9, 4}, Shape{2, 0, 3}, Shape{0, 3, 3}})
    expect_same("linalg_lu_factor", {}, {numbers(shape).to(f64)});
  expect_same("linalg_det", {}, {zeros({2, 0, 0})});
  expect_same("linalg_slogdet", {}, {zeros({2, 0, 0})});
  expect_same("linalg_det", {}, {array({{1.f, 2.f}, {2.f, 4.f}})});
  expect_same("linalg_slogdet", {}, {array({{1.f, 2.f}, {2.f, 4.f}})});
}

TEST_F(CudaTransformSizes, OrthogonalDecompositions) {
  for (const Shape& shape : {Shape{2, 9, 4}, Shape{4, 9}, Shape{12, 12}, Shape{1, 1}, Shape{40, 3}}) {
    if (kThreadSanitizer && shape.numel() > 1) continue;
    const NDArray a = numbers(shape).to(f64);
    for (const bool complete : {false, true}) {
      if (complete && shape[-2] > shape[-1] + 1) continue;  // only the span of more columns is unique
      expect_same("linalg_qr", detail::QrAttrs{complete}, {a});
    }
    expect_same("linalg_svdvals", {}, {a});
    expect_same("linalg_svd", detail::SvdAttrs{false}, {a});
    if (shape[-2] >= shape[-1] && shape[-2] <= shape[-1] + 1)
      expect_same("linalg_svd", detail::SvdAttrs{true}, {a});
    for (const double rtol : {-1.0, 0.3}) expect_same("linalg_pinv", detail::RankAttrs{rtol}, {a});
    if (shape[-1] != shape[-2]) continue;
    for (const bool upper : {false, true}) {
      expect_same("linalg_eigh", detail::SymmetricAttrs{upper}, {a});
      expect_same("linalg_eigvalsh", detail::SymmetricAttrs{upper}, {a});
    }
    expect_same("linalg_cofactor", {}, {a});
  }
  expect_same("linalg_qr", detail::QrAttrs{}, {zeros({3, 2})});
  expect_same("linalg_svdvals", {}, {zeros({3, 2})});
  expect_same("linalg_svdvals", {}, {numbers({7, 1}).to(f64)});
  expect_same("linalg_eigvalsh", detail::SymmetricAttrs{}, {numbers({2, 31, 31}).to(f64)});
  // Singular matrices.
  const NDArray one = array({{1.f, 2.f, 3.f}, {2.f, 4.f, 6.f}, {1.f, 0.f, 1.f}}).to(f64);
  expect_same("linalg_cofactor", {}, {one});
  expect_same("linalg_pinv", detail::RankAttrs{}, {one});
  // The vectors of singular values of 0 complete a basis.
  for (const Shape& shape : {Shape{3, 3}, Shape{7, 2}}) {
    const std::vector<NDArray> parts = call(on_host(*find_operator("linalg_svd")), detail::SvdAttrs{true},
                                            std::vector<NDArray>{zeros(shape, f64)});
    expect_close(eye(shape[0]).to(f64), matmul(parts[0], parts[0].transpose()), f64);
    expect_close(eye(shape[1]).to(f64), matmul(parts[2], parts[2].transpose()), f64);
  }
  const NDArray none = numbers({2, 2}) * NAN;
  for (const double v : values_of("linalg_eigvalsh", detail::SymmetricAttrs{}, {none}))
    EXPECT_TRUE(std::isnan(v));
}

TEST_F(CudaTransformSizes, AMatrixWithANanOrAnInfinityHasTheDecompositionsOfTheCpu) {
  const auto compare = [](const NDArray& a) {
    for (const bool complete : {false, true}) {
      if (complete && a.shape()[-2] < a.shape()[-1]) continue;
      expect_same("linalg_qr", detail::QrAttrs{complete}, {a});
      expect_same("linalg_svd", detail::SvdAttrs{complete}, {a});
    }
    expect_same("linalg_svdvals", {}, {a});
    expect_same("linalg_pinv", detail::RankAttrs{}, {a});
    expect_same("linalg_lstsq", detail::RankAttrs{}, {a, numbers({a.shape()[-2], 2}).to(f64)});
    if (a.shape()[-1] != a.shape()[-2]) return;
    for (const bool upper : {false, true}) {
      expect_same("linalg_eigh", detail::SymmetricAttrs{upper}, {a});
      expect_same("linalg_eigvalsh", detail::SymmetricAttrs{upper}, {a});
    }
    for (const char* name : {"linalg_eig", "linalg_eigvals"}) expect_same(name, {}, {a});
    // Of a matrix with an infinity, some are infinite on the CPU, which divides by pivots.
    if (!any(isinf(a)).item<bool>()) expect_same("linalg_cofactor", {}, {a});
  };
  for (const Shape& shape : {Shape{2, 3, 3}, Shape{2, 3, 2}, Shape{2, 2, 4}, Shape{2, 1, 1}}) {
    const int64_t size = shape[-2] * shape[-1];
    for (const auto& [value, place] :
         {std::pair(NAN, int64_t{0}), {NAN, 1}, {NAN, shape[-1]}, {NAN, size - 1}, {-INFINITY, 1}}) {
      if (place >= size || (kThreadSanitizer && place > 0)) continue;
      // The matrix after it has its own results.
      std::vector<double> elements = numbers(shape).to(f64).to_vector<double>();
      elements[static_cast<size_t>(place)] = value;
      compare(array(elements).reshape(shape));
      if (HasFailure()) return;
    }
  }
}

TEST_F(CudaTransformSizes, SquaresOfLargeAndSmallElementsNeitherOverflowNorVanish) {
  for (const double factor : {1e200, 1e-200}) {
    if (kThreadSanitizer) break;
    const NDArray a = numbers({4, 4}).to(f64) * factor;
    const auto compare = [&](const char* name, const Attrs& attrs, bool by_size) {
      const Operator& op = *find_operator(name);
      const std::vector<NDArray> expected = call(op, attrs, std::vector<NDArray>{a}),
                                 got = call(on_host(op), attrs, std::vector<NDArray>{a});
      SCOPED_TRACE(name);
      // Values have the size of the matrix, the orthogonal factors have not.
      for (size_t i = 0; i < got.size(); ++i) {
        const bool sized = by_size ? expected[i].shape().rank() == 1 : i == 1;
        expect_close(sized ? expected[i] / factor : expected[i], sized ? got[i] / factor : got[i], f64);
      }
    };
    compare("linalg_qr", detail::QrAttrs{}, false);
    compare("linalg_svd", detail::SvdAttrs{}, true);
    compare("linalg_svdvals", {}, true);
    compare("linalg_eigh", detail::SymmetricAttrs{}, true);
    compare("linalg_eigvalsh", detail::SymmetricAttrs{}, true);
  }
}

TEST_F(CudaTransformSizes, EigenvaluesWithoutSymmetry) {
  for (const Shape& shape : {Shape{2, 1, 1}, Shape{3, 2, 2}, Shape{2, 5, 5}, Shape{24, 24}, Shape{0, 0}}) {
    if (kThreadSanitizer && shape.numel() > 12) continue;
    const NDArray a = Generator(11).normal(0, 1, shape).to(f64);
    expect_same("linalg_eig", {}, {a});
    expect_same("linalg_eigvals", {}, {a.swap_axes(-1, -2)});
  }
  // A rotation, whose shifts go round in a circle; a triangle; an eigenvalue of which there is one vector
  // only.
  const NDArray turn = array({{0.f, 0.f, 1.f}, {1.f, 0.f, 0.f}, {0.f, 1.f, 0.f}}).to(f64);
  expect_same("linalg_eig", {}, {turn});
  expect_same("linalg_eig", {}, {array({{1.f, 2.f, 3.f}, {0.f, 4.f, 5.f}, {0.f, 0.f, 6.f}}).to(f64)});
  expect_same("linalg_eig", {}, {zeros({3, 3}, f64)});
  const NDArray one_vector = array({{2.f, 1.f}, {0.f, 2.f}}).to(f64);
  const std::vector<NDArray> parts =
      call(on_host(*find_operator("linalg_eig")), {}, std::vector<NDArray>{one_vector});
  expect_close(parts[1].select(-1, 0) * 2, matmul(one_vector, parts[1].select(-1, 0)), f64);
  for (const double v : values_of("linalg_eigvals", {}, {numbers({2, 2}) * NAN})) EXPECT_TRUE(std::isnan(v));
}

TEST_F(CudaTransformSizes, LeastSquaresAndExponentials) {
  for (const Shape& shape : {Shape{2, 9, 4}, Shape{4, 9}, Shape{6, 6}, Shape{1, 1}, Shape{40, 3}}) {
    if (kThreadSanitizer && shape.numel() > 1) continue;
    const NDArray a = numbers(shape).to(f64);
    for (const double rtol : {-1.0, 0.3})
      expect_same("linalg_lstsq", detail::RankAttrs{rtol}, {a, numbers({3, 1, shape[-2], 2}).to(f64)});
  }
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 0}})
    expect_same("linalg_lstsq", detail::RankAttrs{}, {zeros(shape, f64), zeros({shape[-2], 2}, f64)});
  expect_same("linalg_lstsq", detail::RankAttrs{}, {zeros({3, 2}, f64), numbers({3, 0}).to(f64)});
  expect_same("linalg_lstsq", detail::RankAttrs{}, {zeros({3, 2}, f64), numbers({3, 1}).to(f64)});
  // Norms below and above the one up to which nothing is halved.
  for (const double scale : {0.01, 1.0, 30.0})
    for (const int64_t n : {1, 2, 7, 20}) {
      if (kThreadSanitizer && n > 2) continue;
      expect_same("linalg_matrix_exp", {}, {(numbers({2, n, n}) * (scale / static_cast<double>(n))).to(f64)});
    }
  expect_same("linalg_matrix_exp", {}, {zeros({2, 0, 0})});
}

TEST_F(CudaTransformSizes, WindowsAsColumns) {
  const NDArray images = numbers({2, 3, 7, 5});
  for (const DType type : {f32, f64, f16, bf16}) {
    const UnfoldAttrs attrs{.kernel = {3, 2}, .dilation = {2, 1}, .padding = {1, 2}, .stride = {2, 1}};
    const FoldAttrs back{{7, 5}, attrs.kernel, attrs.dilation, attrs.padding, attrs.stride};
    expect_same("unfold", attrs, {images.to(type)});
    expect_same("unfold", attrs, {numbers({7, 5, 3, 2}).to(type).transpose({3, 2, 0, 1})});
    expect_same("fold", back, {numbers({2, 18, 24}).to(type)});
    if (kThreadSanitizer) break;
  }
  expect_same("unfold", UnfoldAttrs{.kernel = 2}, {zeros({0, 3, 4, 4})});
  expect_same("fold", FoldAttrs{.size = {0, 4}, .kernel = 1, .padding = 1}, {zeros({1, 2, 12})});
}

TEST_F(CudaTransformSizes, CtcLosses) {
  const NDArray scores = log_softmax(numbers({30, 5, 4}) * 2);
  // Many equal labels; one sample without labels, one without steps.
  const NDArray targets = labels({5, 9}, 3) + 1;
  const NDArray steps = array<int64_t>({30, 29, 12, 30, 0}), lengths = array<int64_t>({9, 4, 7, 0, 2});
  for (const bool zero : {false, true}) {
    expect_same("ctc_loss", CtcAttrs{0, zero}, {scores, targets, steps, lengths});
    expect_same("ctc_loss_backward", CtcAttrs{0, zero}, {numbers({5}), scores, targets, steps, lengths});
    if (kThreadSanitizer) return;
  }
  const NDArray joined = labels({22}, 3) + 1;
  expect_same("ctc_loss_backward", CtcAttrs{}, {numbers({5}), scores, joined, steps, lengths});
  // More states than a block has threads.
  const NDArray longer = log_softmax(numbers({300, 1, 5}));
  expect_same("ctc_loss_backward", CtcAttrs{4},
              {numbers({1}), longer, labels({1, 140}, 4), array<int64_t>({300}), array<int64_t>({140})});
}

TEST_F(CudaTransformSizes, Interpolations) {
  const int64_t sizes[][2] = {{1, 9}, {9, 1}, {40, 7}, {7, 40}, {300, 290}};
  for (const char* mode : {"nearest", "nearest-exact", "linear", "cubic"})
    for (const auto& [in, out] : sizes)
      for (const bool corners : {false, true}) {
        const double step = !corners  ? static_cast<double>(in) / static_cast<double>(out)
                            : out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1)
                                      : 0;
        detail::ResampleAttrs attrs{.size = out, .steps = {step}, .mode = mode, .align_corners = corners};
        expect_same("resample", attrs, {numbers({2, 2, in})});
        attrs.size = in;
        expect_same("resample_backward", attrs, {numbers({2, 2, out})});
        if (kThreadSanitizer) return;
      }
  detail::ResampleAttrs attrs{.size = {5, 9}, .steps = {0.6, 0.5}, .mode = "cubic"};
  for (const DType type : {f64, bf16}) {
    expect_same("resample", attrs, {numbers({3, 2, 4, 5}).to(type).swap_axes(0, 1)});
    expect_same("resample_backward", attrs, {numbers({3, 2, 11, 17}).to(type).swap_axes(0, 1)});
  }
  expect_same("resample", attrs, {zeros({0, 2, 4, 5})});
  // A factor so small that all elements but the last are in no result, and sizes that the step does not fit.
  attrs.steps = {3, 100};
  expect_same("resample", attrs, {numbers({1, 1, 4, 5})});
  expect_same("resample_backward", attrs, {numbers({1, 1, 4, 5})});
}

}  // namespace
}  // namespace mx::test
