// Embedding, EmbeddingBag and Bilinear.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

struct EmbeddingOptions {
  /// A row that starts as zeros and gets no gradient. Negative numbers count from the end.
  std::optional<int64_t> padding_idx{};
  /// Before each call, rows that it takes and whose norm is larger are scaled down to this norm, in place.
  std::optional<double> max_norm{};
  double norm_type = 2;  ///< the p of that norm
  /// The gradient is row-sparse (operators/row_sparse.h): a step costs as much as the batch has rows, and not
  /// as much as the table. Optimisers then update only these rows (optim/optimizer.h).
  bool sparse = false;
  Context context = cpu();
  DType dtype = f32;
};

/// Maps integers (..) to rows (.., width) of a table. Parameter: weight (rows, width), initialised from the
/// standard normal distribution; the numbers come from the CPU's default generator on every device. Negative
/// indices are out of range. An index out of range is an InvalidArgument that waits throw, because it is
/// found when the operation runs.
class Embedding : public ModuleOf<Embedding> {
 public:
  /// Throws InvalidArgument for a negative size, a padding_idx that is no row, a negative max_norm, and a
  /// type that is not floating point.
  Embedding(IntArg rows, IntArg width, const EmbeddingOptions& options = {},
            std::source_location where = std::source_location::current());
  /// As Embedding::from_pretrained of PyTorch: the table is `weight`, which is not trained if `freeze` is
  /// set.
  static Embedding from_pretrained(const NDArray& weight, bool freeze = true, EmbeddingOptions options = {});
  NDArray forward(const NDArray& indices) override;
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Parameter weight;

 private:
  int64_t padding_ = -1;
  std::optional<double> max_norm_;
  double norm_type_;
  bool sparse_;
};

struct EmbeddingBagOptions {
  std::string mode = "mean";             ///< "sum", "mean" or "max" over the rows of a bag
  std::optional<int64_t> padding_idx{};  ///< indices with this value do not belong to the bag
  Context context = cpu();
  DType dtype = f32;
};

/// Sums, means or largest elements of the rows of bags: maps integers (bags, size) to (bags, width). A bag
/// without rows gives zeros. Parameter: weight (rows, width), and errors of indices as in Embedding.
class EmbeddingBag : public ModuleOf<EmbeddingBag> {
 public:
  /// Throws InvalidArgument for what Embedding refuses, and for another mode.
  EmbeddingBag(IntArg rows, IntArg width, const EmbeddingBagOptions& options = {},
               std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& indices) override;
  /// Bags of different sizes: bag b has indices[offsets[b] .. offsets[b + 1]), the last one those up to the
  /// end. Both are of rank 1, and offsets ascend from 0. Throws InvalidArgument for the mode "max", and for
  /// offsets of the CPU, whose values it waits for, that do not ascend from 0 to at most the number of
  /// indices.
  NDArray forward(const NDArray& indices, const NDArray& offsets);
  std::string extra() const override;

  Parameter weight;

 private:
  std::string mode_;
  int64_t padding_ = -1;
};

struct BilinearOptions {
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// y[.., k] = a weight[k] b' + bias[k] for a (.., in1) and b (.., in2). Parameters: weight (out, in1, in2)
/// and bias (out,), both initialised uniformly in [-c, c) with c = 1 / sqrt(in1), as in torch.nn.Bilinear.
class Bilinear : public ModuleOf<Bilinear> {
 public:
  /// Throws InvalidArgument for a negative size and for a type that is not floating point.
  Bilinear(IntArg in1, IntArg in2, IntArg out, const BilinearOptions& options = {},
           std::source_location where = std::source_location::current());
  NDArray operator()(const NDArray& a, const NDArray& b,
                     std::source_location where = std::source_location::current()) const;
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Parameter weight, bias;
};

}  // namespace mx::nn
