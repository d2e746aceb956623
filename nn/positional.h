// Positions for Transformers: sinusoids and learned rows, which are added to embeddings, and rotations of
// queries and keys. torch.nn has none of them.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/rotary.h"

namespace mx::nn {

struct PositionalOptions {
  int64_t max_length = 5000;
  bool batch_first = false;  ///< arrays are (batch, length, width), not (length, batch, width)
  Context context = cpu();
  DType dtype = f32;
};

/// Adds sin(p / 10000^(2i / width)) to number 2i of the row at position p, and the cosine to number 2i + 1.
/// Takes (length, batch, width) or (length, width). A buffer that is not saved holds the sinusoids. Source:
/// Vaswani et al., "Attention Is All You Need", 2017.
class SinusoidalPositions : public ModuleOf<SinusoidalPositions> {
 public:
  /// Throws InvalidArgument for a width or length below 1, and for a type that is not floating point.
  explicit SinusoidalPositions(IntArg width, const PositionalOptions& options = {},
                               std::source_location where = std::source_location::current());
  /// Throws InvalidArgument for another width, and for more rows than max_length.
  NDArray forward(const NDArray& x) override { return forward(x, 0); }
  /// The first row is at position `offset`.
  NDArray forward(const NDArray& x, int64_t offset);
  std::string extra() const override;

  Parameter table;  ///< (max_length, width)

 private:
  bool batch_first_;
};

/// Adds row p of a trainable table to the row at position p. Parameter: weight (max_length, width), which
/// starts normal with the standard deviation 0.02.
class LearnedPositions : public ModuleOf<LearnedPositions> {
 public:
  explicit LearnedPositions(IntArg width, const PositionalOptions& options = {},
                            std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override { return forward(x, 0); }
  NDArray forward(const NDArray& x, int64_t offset);
  std::string extra() const override;

  Parameter weight;

 private:
  bool batch_first_;
};

/// rotary_embedding() of queries or keys (batch, heads, length, width).
class RotaryEmbedding : public ModuleOf<RotaryEmbedding> {
 public:
  explicit RotaryEmbedding(const RotaryOptions& options = {}) : options_(options) {}
  NDArray forward(const NDArray& x) override { return forward(x, 0); }
  /// The first row is at position `offset` behind that of the options.
  NDArray forward(const NDArray& x, int64_t offset);
  std::string extra() const override;

 private:
  RotaryOptions options_;
};

}  // namespace mx::nn
