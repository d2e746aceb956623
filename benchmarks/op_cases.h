// The cases of the operator benchmarks: one list for our own program and for every peer, so that figures of
// different libraries mean the same work.
//
//   <op>/<size>   elementwise, reductions, rows and the like. <size> is that of one float32 operand:
//                 16KiB fits the first-level cache, 256KiB the second, 64MiB no cache. GB/s count the
//                 bytes that the operation must read and write, once.
//   sgemm_<n>     c = a b with square float32 matrices, row-major; 2 n^3 operations.
//   igemm_<n>     the same with int8 operands and an int32 result
//
//   solve_<n> cholesky_<n> svdvals_<n>    square float32 matrices; a right side of n columns; 8/3 n^3,
//                 n^3 / 3 and 4 n^3 operations
//   rfft_<n>      rows of n float32, 64Ki in all; 5/2 log2(n) operations per number
//
//   add mul            c = a + b, c = a * b
//   relu exp tanh sigmoid
//   sum max argmax     of the whole operand
//   softmax log_softmax    over rows of 128
//   layer_norm rms_norm    over rows of 128, with weight (and bias); _backward: dx, dweight (and dbias)
//   batch_norm         of (n, 16 channels, m) in training, with weight and bias; _backward: dx, dweight,
//                      dbias
//   transpose          a square matrix into a contiguous one
//   cast_f16           float32 to float16
//   cumsum sort        of the operand as one row; sort counts only the values, even if it returns indices too
//   where              by a mask of bools
//   take               c[i] = a[index[i]], int64 indices in random order
//   cross_entropy      mean over rows of 128 logits, int64 targets
//   mse_loss huber_loss bce_with_logits    mean over all elements, delta 1
//   adam               one step of a parameter: reads value, gradient and two moments, writes all of them but
//                      the gradient
//
//   conv_fwd conv_data conv_weights    a convolution of float32 images (images, channels, height, width),
//                  and its gradients with respect to images and weights, in the shapes of conv_shapes();
//                  GFLOP/s count every product, also those with padding
//
//   csr_matmul_<n> csr_matmul_t_<n>    a sparse matrix (kSparseRows, kSparseRows) with kSparseEntries
//                  entries in each row at random columns, or its transpose, times a dense one of n columns;
//                  2 operations for each entry and column
//   segment_sum_<n>    of kSparseRows segments of kSparseEntries rows of n numbers
//   lstm_fwd gru_fwd    a recurrent layer of one direction with biases, in the shapes of recurrent_shapes();
//   lstm_train          GFLOP/s count the products of inputs and states. _train: with the gradients of
//   gru_train           inputs, weights and biases, which count twice as much as the forward pass
//   rnn_fwd rnn_train  the same with tanh and without gates
//
//   attention_fwd      (batch, heads, length, width), in the shapes of attention_shapes(); GFLOP/s count both
//   attention_train    products, half of them if causal; _train as above
//   rotary_embedding   of rows of 64
//   convolution_1d convolution_3d convolution_transpose    in the shapes of spatial_shapes(), counted as
//                      conv_
//   max_pool avg_pool max_pool_train    windows of 2 x 2 without overlap; GB/s count operand and result,
//                      with gradients twice
//   group_norm instance_norm group_norm_train    of (n, 16 channels, m), 4 groups, with weight and bias
//   nearest bilinear bicubic    interpolation of images to twice their height and width
//   unfold fold        windows of 3 x 3 of padded images, and their sums
//   embedding          rows of 128 of a table of kTableRows rows; GB/s count the rows that are taken
//   embedding_train embedding_sparse    its gradient, dense (with the whole table) and as rows
//   segment_mean segment_max segment_softmax    as segment_sum; softmax counts operand and result
//   ctc ctc_train      (steps, batch, 40 classes), targets of a quarter of the steps; GB/s count the operand,
//                      and its gradient
//   cdist_<rows> cdist_train_<rows>    Euclidean distances of all pairs of rows of 64; 3 operations for each
//                      pair and coordinate, and 8 more for the gradients of both operands
//   cdist1_<rows> cdist1_train_<rows>  the same of order 1
//   inv det qr eigh lstsq    square matrices; 2 n^3, 2/3 n^3, 8/3 n^3, 9 n^3 and 10/3 n^3 operations (lstsq
//                      as by QR, with a right side of n columns)
//   fft_<n>            rows of n complex numbers, 64Ki in all; 5 log2(n) operations per number
//
// Results are written to memory that the system reuses (peers with an `out` argument), as in our own kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace mx::bench {

constexpr int64_t kOpColumns = 128;  ///< of softmax, log_softmax, cross_entropy, layer_norm, rms_norm
constexpr int64_t kOpChannels = 16;  ///< of batch_norm
constexpr int64_t kOpBatch = 8;      ///< of batch_norm

constexpr int64_t kSparseRows = 16384;
constexpr int64_t kSparseEntries = 8;

constexpr int64_t kTableRows = 32768;
constexpr int64_t kCtcClasses = 40;
constexpr int64_t kDistanceColumns = 64;

struct OpCase {
  std::string name;      ///< "add/256KiB", "sgemm_64"
  std::string op;        ///< "add", "sgemm"
  int64_t elements = 0;  ///< of one operand
  int64_t side = 0;      ///< of a square matrix: sgemm, transpose
  double work = 0;       ///< bytes, or floating-point operations, of one call
  const char* unit =
      "GB/s";  ///< work per nanosecond, "GB/s" or "GFLOP/s"; or "ns/op", time per work; "x": a ratio
};

/// A convolution with square images and kernels, without bias.
struct ConvShape {
  const char* name;  ///< of its cases: "conv_fwd/<name>"
  int64_t images, in, size, out, kernel, stride, padding, groups;

  int64_t result() const { return (size + 2 * padding - kernel) / stride + 1; }
  double operations() const {
    return 2. * static_cast<double>(images * out * result() * result() * (in / groups) * kernel * kernel);
  }
};

/// Layers of ResNet-18 for images of 32 x 32, of LeNet-5, and others. OpCase::side is the index.
inline const std::vector<ConvShape>& conv_shapes() {
  static const std::vector<ConvShape> shapes = {{"64x64x3x3_32", 32, 64, 32, 64, 3, 1, 1, 1},
                                                {"128x128x3x3_16", 32, 128, 16, 128, 3, 1, 1, 1},
                                                {"256x256x3x3_8", 32, 256, 8, 256, 3, 1, 1, 1},
                                                {"512x512x3x3_4", 32, 512, 4, 512, 3, 1, 1, 1},
                                                {"64x128x3x3_32_stride2", 32, 64, 32, 128, 3, 2, 1, 1},
                                                {"64x128x1x1_32_stride2", 32, 64, 32, 128, 1, 2, 0, 1},
                                                {"64x256x1x1_32", 32, 64, 32, 256, 1, 1, 0, 1},
                                                {"3x64x3x3_32", 32, 3, 32, 64, 3, 1, 1, 1},
                                                {"lenet_1x6x5x5_28", 64, 1, 28, 6, 5, 1, 2, 1},
                                                {"lenet_6x16x5x5_14", 64, 6, 14, 16, 5, 1, 0, 1},
                                                {"depthwise_64x3x3_32", 32, 64, 32, 64, 3, 1, 1, 64}};
  return shapes;
}

/// A recurrent layer over a sequence.
struct RecurrentShape {
  const char* name;
  int64_t steps, batch, inputs, hidden;

  double operations(int64_t gates) const {
    return 2. * static_cast<double>(steps * batch * gates * hidden * (inputs + hidden));
  }
};

/// OpCase::side is the index.
inline const std::vector<RecurrentShape>& recurrent_shapes() {
  static const std::vector<RecurrentShape> shapes = {{"h256_b64_t64", 64, 64, 256, 256},
                                                     {"h256_b32_t128", 128, 32, 256, 256},
                                                     {"h128_b32_t32", 32, 32, 128, 128},
                                                     {"h256_b1_t1", 1, 1, 256, 256}};
  return shapes;
}

struct AttentionShape {
  const char* name;
  int64_t batch, heads, length, width;
  bool causal;

  int64_t elements() const { return batch * heads * length * width; }
  double operations() const {
    return (causal ? 2. : 4.) * static_cast<double>(elements()) * static_cast<double>(length);
  }
};

/// OpCase::side is the index.
inline const std::vector<AttentionShape>& attention_shapes() {
  static const std::vector<AttentionShape> shapes = {{"b1_h2_l32_w16", 1, 2, 32, 16, false},
                                                     {"b16_h8_l128_w64", 16, 8, 128, 64, false},
                                                     {"b1_h8_l1024_w64", 1, 8, 1024, 64, false},
                                                     {"b1_h8_l1024_w64_causal", 1, 8, 1024, 64, true}};
  return shapes;
}

/// A convolution whose axes have equal sizes. A transposed one makes images of `size` from smaller ones.
struct SpatialShape {
  const char* op;
  const char* name;
  int64_t axes, images, in, size, out, kernel, stride, padding;

  int64_t result() const { return (size + 2 * padding - kernel) / stride + 1; }
  double operations() const {
    const auto power = [&](int64_t n) { return std::pow(static_cast<double>(n), static_cast<double>(axes)); };
    return 2. * static_cast<double>(images * out * in) * power(result()) * power(kernel);
  }
};

/// OpCase::side is the index.
inline const std::vector<SpatialShape>& spatial_shapes() {
  static const std::vector<SpatialShape> shapes = {
      {"convolution_1d", "4x4x5_128", 1, 2, 4, 128, 4, 5, 1, 2},
      {"convolution_1d", "64x64x5_1024", 1, 16, 64, 1024, 64, 5, 1, 2},
      {"convolution_3d", "2x2x3_8", 3, 1, 2, 8, 2, 3, 1, 1},
      {"convolution_3d", "16x32x3_16", 3, 4, 16, 16, 32, 3, 1, 1},
      {"convolution_transpose", "2x4x4_16_stride2", 2, 1, 4, 16, 2, 4, 2, 1},
      {"convolution_transpose", "64x128x4_32_stride2", 2, 16, 64, 32, 128, 4, 2, 1}};
  return shapes;
}

/// The cases of operator families with two sizes each, or with shapes of their own.
inline void add_family_cases(std::vector<OpCase>& cases) {
  for (size_t i = 0; i < attention_shapes().size(); ++i) {
    const AttentionShape& s = attention_shapes()[i];
    for (const auto& [op, passes] : {std::pair("attention_fwd", 1), std::pair("attention_train", 3)})
      cases.push_back({std::string(op) + '/' + s.name, op, s.elements(), static_cast<int64_t>(i),
                       passes * s.operations(), "GFLOP/s"});
  }
  for (size_t i = 0; i < spatial_shapes().size(); ++i) {
    const SpatialShape& s = spatial_shapes()[i];
    int64_t elements = s.images * s.in;
    for (int64_t axis = 0; axis < s.axes; ++axis) elements *= s.size;
    cases.push_back({std::string(s.op) + '/' + s.name, s.op, elements, static_cast<int64_t>(i),
                     s.operations(), "GFLOP/s"});
  }
  struct Family {
    const char* op;
    double bytes_per_element;
  };
  // OpCase::side is the height and width of an image, or the number of rows, steps or labels.
  const Family images[] = {{"max_pool", 5},  {"max_pool_train", 10}, {"avg_pool", 5}, {"nearest", 20},
                           {"bilinear", 20}, {"bicubic", 20},        {"unfold", 40},  {"fold", 40}};
  for (const Family& f : images)
    for (const int64_t side : {8, 64}) {
      const int64_t elements = (side == 8 ? 4 : 512) * side * side;
      cases.push_back(
          {std::string(f.op) + '/' + std::to_string(elements / side / side) + "x" + std::to_string(side),
           f.op, elements, side, f.bytes_per_element * static_cast<double>(elements), "GB/s"});
    }
  const double table = 4. * static_cast<double>(kTableRows * kOpColumns);
  for (const int64_t rows : {32, 8192}) {
    const int64_t elements = rows * kOpColumns;
    const double bytes = 8. * static_cast<double>(elements);
    const std::string size = '/' + std::to_string(rows);
    cases.push_back({"embedding" + size, "embedding", elements, rows, bytes, "GB/s"});
    cases.push_back({"embedding_train" + size, "embedding_train", elements, rows, bytes + table, "GB/s"});
    cases.push_back({"embedding_sparse" + size, "embedding_sparse", elements, rows, bytes, "GB/s"});
  }
  for (const int64_t n : {16, 64, 256})
    for (const auto& [op, passes] :
         {std::pair("segment_mean", 0), std::pair("segment_max", 0), std::pair("segment_softmax", 1)}) {
      const int64_t elements = kSparseRows * kSparseEntries * n;
      cases.push_back({std::string(op) + '_' + std::to_string(n), op, elements, n,
                       4 * static_cast<double>(elements + (passes > 0 ? elements : kSparseRows * n)),
                       "GB/s"});
    }
  for (const auto& [steps, batch] : {std::pair<int64_t, int64_t>(40, 2), {400, 32}})
    for (const auto& [op, passes] : {std::pair("ctc", 1), std::pair("ctc_train", 2)})
      cases.push_back({std::string(op) + "/t" + std::to_string(steps) + "_b" + std::to_string(batch), op,
                       steps * batch * kCtcClasses, steps,
                       4. * passes * static_cast<double>(steps * batch * kCtcClasses), "GB/s"});
  for (const int64_t n : {16, 256, 1024})
    for (const auto& [op, operations] : {std::pair("cdist", 3), std::pair("cdist_train", 11),
                                         std::pair("cdist1", 3), std::pair("cdist1_train", 11)})
      cases.push_back({std::string(op) + '_' + std::to_string(n), op, n * kDistanceColumns, n,
                       operations * static_cast<double>(n * n * kDistanceColumns), "GFLOP/s"});
  for (const int64_t n : {16, 256, 1024})
    for (const auto& [op, factor] : {std::pair("inv", 2.), std::pair("det", 2. / 3), std::pair("qr", 8. / 3),
                                     std::pair("eigh", 9.), std::pair("lstsq", 10. / 3)})
      if (n < 1024 || op[0] == 'i' || op[0] == 'd')
        cases.push_back({std::string(op) + '_' + std::to_string(n), op, n * n, n,
                         factor * std::pow(static_cast<double>(n), 3), "GFLOP/s"});
  for (const int64_t n : {64, 1024, 1000, 65536}) {
    const int64_t rows = 65536 / n;
    cases.push_back({"fft_" + std::to_string(n), "fft", rows * n, n,
                     5. * static_cast<double>(rows * n) * std::log2(static_cast<double>(n)), "GFLOP/s"});
  }
}

inline std::vector<OpCase> op_cases() {
  struct Op {
    const char* name;
    double bytes_per_element;
  };
  // Bytes of operands read and results written, per element.
  const Op ops[] = {{"add", 12},
                    {"mul", 12},
                    {"relu", 8},
                    {"exp", 8},
                    {"tanh", 8},
                    {"sigmoid", 8},
                    {"sum", 4},
                    {"max", 4},
                    {"argmax", 4},
                    {"softmax", 8},
                    {"log_softmax", 8},
                    {"transpose", 8},
                    {"layer_norm", 8},
                    {"layer_norm_backward", 12},
                    {"rms_norm", 8},
                    {"rms_norm_backward", 12},
                    {"batch_norm", 8},
                    {"batch_norm_backward", 12},
                    {"group_norm", 8},
                    {"group_norm_train", 20},
                    {"instance_norm", 8},
                    {"rotary_embedding", 8},
                    {"cast_f16", 6},
                    {"cumsum", 8},
                    {"sort", 8},
                    {"where", 13},
                    {"take", 16},
                    {"cross_entropy", 4 + 8.0 / kOpColumns},
                    {"mse_loss", 8},
                    {"huber_loss", 8},
                    {"bce_with_logits", 8},
                    {"adam", 28}};
  struct Size {
    const char* name;
    int64_t elements;
  };
  const Size sizes[] = {{"16KiB", 4 << 10}, {"256KiB", 64 << 10}, {"64MiB", 16 << 20}};
  std::vector<OpCase> cases;
  for (const int64_t n : {16, 64, 256, 1024, 2048}) {
    const double side = static_cast<double>(n);
    cases.push_back({"sgemm_" + std::to_string(n), "sgemm", n * n, n, 2 * side * side * side, "GFLOP/s"});
  }
  for (const int64_t n : {64, 256, 1024})
    cases.push_back({"igemm_" + std::to_string(n), "igemm", n * n, n, 2 * std::pow(static_cast<double>(n), 3),
                     "GFLOP/s"});
  for (const int64_t n : {16, 256, 1024}) {
    const double cube = std::pow(static_cast<double>(n), 3);
    for (const auto& [op, factor] : {std::pair("solve", 8. / 3), std::pair("cholesky", 1. / 3)})
      cases.push_back({std::string(op) + '_' + std::to_string(n), op, n * n, n, factor * cube, "GFLOP/s"});
    if (n < 1024) cases.push_back({"svdvals_" + std::to_string(n), "svdvals", n * n, n, 4 * cube, "GFLOP/s"});
  }
  for (const int64_t n : {64, 1024, 1000, 65536}) {
    const int64_t rows = 65536 / n;
    const auto elements = static_cast<double>(rows * n);
    cases.push_back({"rfft_" + std::to_string(n), "rfft", rows * n, n,
                     2.5 * elements * std::log2(static_cast<double>(n)), "GFLOP/s"});
  }
  for (const int64_t n : {16, 64, 256}) {
    const int64_t elements = kSparseRows * kSparseEntries * n;
    for (const char* op : {"csr_matmul", "csr_matmul_t"})
      cases.push_back({std::string(op) + '_' + std::to_string(n), op, kSparseRows * n, n,
                       2 * static_cast<double>(elements), "GFLOP/s"});
    cases.push_back({"segment_sum_" + std::to_string(n), "segment_sum", elements, n,
                     4 * static_cast<double>(elements + kSparseRows * n), "GB/s"});
  }
  for (size_t i = 0; i < conv_shapes().size(); ++i) {
    const ConvShape& s = conv_shapes()[i];
    for (const char* op : {"conv_fwd", "conv_data", "conv_weights"})
      cases.push_back({std::string(op) + '/' + s.name, op, s.images * s.in * s.size * s.size,
                       static_cast<int64_t>(i), s.operations(), "GFLOP/s"});
  }
  for (size_t i = 0; i < recurrent_shapes().size(); ++i) {
    const RecurrentShape& s = recurrent_shapes()[i];
    for (const auto& [op, gates, passes] :
         {std::tuple("lstm_fwd", 4, 1), std::tuple("lstm_train", 4, 3), std::tuple("gru_fwd", 3, 1),
          std::tuple("gru_train", 3, 3), std::tuple("rnn_fwd", 1, 1), std::tuple("rnn_train", 1, 3)})
      cases.push_back({std::string(op) + '/' + s.name, op, s.steps * s.batch * s.inputs,
                       static_cast<int64_t>(i), passes * s.operations(gates), "GFLOP/s"});
  }
  add_family_cases(cases);
  for (const Op& op : ops) {
    for (const Size& size : sizes) {
      const auto elements = static_cast<double>(size.elements);
      cases.push_back({std::string(op.name) + "/" + size.name, op.name, size.elements,
                       static_cast<int64_t>(std::llround(std::sqrt(elements))),
                       op.bytes_per_element * elements, "GB/s"});
    }
  }
  return cases;
}

/// The cost of one small operation: one thread, arrays of 2 x 2 float32. The arithmetic is negligible, so
/// this is the cost of the call: dispatch, allocation, recording, the tape. Programs also print
/// <case>_allocs, the allocations of one operation in steady state.
///
///   add            c = a + b
///   add_inference  the same in a mode without gradients, if the system has one
///   add_number     c = a + 1
///   add_inplace    a += b
///   add_recorded   c = a + b recorded for a gradient: the node is created, and destroyed with c
///   add_fwd_bwd    y = a + b + b + ... 100 times, summed, backward; per addition
///
/// A further case shows that large operations still run in parallel with the caller, if a library supports
/// that:
///
///   large_overlap  two independent operations of 32768 float32 each and of one thread each: the time of
///                  both in sequence, with a wait between them, divided by that of both pushed and then
///                  waited for. Near 2 on two processors; 1 if the caller runs everything itself.
inline std::vector<OpCase> eager_cases() {
  std::vector<OpCase> cases;
  for (const char* name :
       {"add", "add_number", "add_inference", "add_inplace", "add_recorded", "add_fwd_bwd"}) {
    cases.push_back({name, name, 4, 2, name == std::string("add_fwd_bwd") ? 100.0 : 1.0, "ns/op"});
  }
  cases.push_back({"large_overlap", "large_overlap", 32768, 0, 1, "x"});
  return cases;
}

}  // namespace mx::bench
