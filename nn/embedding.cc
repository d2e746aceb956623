#include "nn/embedding.h"

#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/kernels/index_check.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/sorting.h"

namespace mx::nn {
namespace {

NDArray new_table(const char* layer, int64_t rows, int64_t width, DType dtype, Context context) {
  MX_CHECK(rows >= 0 && width >= 0, InvalidArgument, "[", layer,
           "] expected sizes of 0 or more, got rows = ", rows, " and width = ", width);
  MX_CHECK(is_floating(dtype), InvalidArgument, "[", layer, "] expected a floating-point type, got ", dtype);
  return empty({rows, width}, dtype, context);
}

/// Returns the row, -1 for none.
int64_t padding_row(const char* layer, std::optional<int64_t> padding, int64_t rows) {
  if (!padding) return -1;
  MX_CHECK(*padding >= -rows && *padding < rows, InvalidArgument, "[", layer,
           "] expected a padding_idx from ", -rows, " to ", rows - 1, ", got ", *padding);
  return *padding < 0 ? *padding + rows : *padding;
}

void reset_table(const Parameter& table, int64_t padding, Generator* generator) {
  init::normal_(table, 0, 1, generator);
  if (padding < 0) return;
  const NoGrad pause;
  table.array().select(0, padding).fill_(0);
}

}  // namespace

Embedding::Embedding(IntArg rows, IntArg width, const EmbeddingOptions& options,
                     std::source_location where) try
    : weight(add_parameter("weight", new_table("Embedding", rows, width, options.dtype, options.context))),
      padding_(padding_row("Embedding", options.padding_idx, rows)),
      max_norm_(options.max_norm),
      norm_type_(options.norm_type),
      sparse_(options.sparse) {
  MX_CHECK(options.max_norm.value_or(0) >= 0, InvalidArgument,
           "[Embedding] expected a max_norm of 0 or more, got ", *options.max_norm);
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Embedding Embedding::from_pretrained(const NDArray& weight, bool freeze, EmbeddingOptions options) {
  MX_CHECK(weight.rank() == 2, InvalidArgument, "[Embedding] expected a table of rank 2, got shape ",
           weight.shape());
  options.context = weight.context();
  options.dtype = weight.dtype();
  Embedding layer(weight.size(0), weight.size(1), options);
  {
    const NoGrad pause;
    layer.weight.copy_from(weight.detach());
  }
  layer.requires_grad_(!freeze);
  return layer;
}

NDArray Embedding::forward(const NDArray& indices) {
  const Arg table(weight.array(), detail::call_site());
  if (max_norm_) {
    const NoGrad pause;
    // A row that was taken several times gets the same values each time.
    const NDArray rows = embedding({weight.detach(), table.where}, indices, -1, false, false);
    const NDArray norms = norm(rows, norm_type_, -1, true);
    const NDArray scale = where(norms > *max_norm_, *max_norm_ / (norms + 1e-7), 1);
    NDArray all = weight.detach();
    const int64_t width = all.size(1);
    index_copy_(all, indices.reshape({-1}), (rows * scale).reshape({indices.numel(), width}), 0, table.where);
  }
  return embedding(table, indices, padding_, sparse_, false);
}

void Embedding::reset_parameters(Generator* generator) { reset_table(weight, padding_, generator); }

std::string Embedding::extra() const {
  std::string text = mx::detail::concat("rows=", weight.shape()[0], ", width=", weight.shape()[1]);
  if (padding_ >= 0) text += mx::detail::concat(", padding_idx=", padding_);
  if (max_norm_) text += mx::detail::concat(", max_norm=", *max_norm_);
  if (sparse_) text += ", sparse=true";
  return text;
}

EmbeddingBag::EmbeddingBag(IntArg rows, IntArg width, const EmbeddingBagOptions& options,
                           std::source_location where) try
    : weight(add_parameter("weight", new_table("EmbeddingBag", rows, width, options.dtype, options.context))),
      mode_(options.mode),
      padding_(padding_row("EmbeddingBag", options.padding_idx, rows)) {
  MX_CHECK(mode_ == "sum" || mode_ == "mean" || mode_ == "max", InvalidArgument,
           "[EmbeddingBag] expected the mode \"sum\", \"mean\" or \"max\", got \"", mode_, '"');
  reset_table(weight, padding_, nullptr);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray EmbeddingBag::forward(const NDArray& indices) {
  MX_CHECK(indices.rank() == 2, InvalidArgument,
           "[EmbeddingBag] expected indices (bags, size), or of rank 1 with offsets, got shape ",
           indices.shape());
  const NDArray rows = embedding({weight.array(), detail::call_site()}, indices, padding_, false, false);
  if (padding_ < 0 && indices.size(1) > 0)
    return mode_ == "sum" ? sum(rows, 1) : mode_ == "mean" ? mean(rows, 1) : max(rows, 1);
  const NDArray counts_in = (indices != padding_).expand_dims(-1);
  const NDArray count = sum(counts_in.to(rows.dtype()), 1);  // (bags, 1)
  if (mode_ == "max") {
    if (indices.size(1) == 0) return sum(rows, 1);
    const NDArray largest = max(where(counts_in, rows, -std::numeric_limits<double>::infinity()), 1);
    return where(count > 0, largest, 0);
  }
  const NDArray total = sum(where(counts_in, rows, 0), 1);
  return mode_ == "sum" ? total : total / maximum(count, 1);
}

NDArray EmbeddingBag::forward(const NDArray& indices, const NDArray& offsets) {
  MX_CHECK(mode_ != "max", InvalidArgument,
           "[EmbeddingBag] expected the mode \"sum\" or \"mean\" with offsets, got \"max\"");
  MX_CHECK(indices.rank() == 1 && offsets.rank() == 1 && is_integral(offsets.dtype()), InvalidArgument,
           "[EmbeddingBag] expected indices and integer offsets of rank 1, got shapes ", indices.shape(),
           " and ", offsets.dtype(), ' ', offsets.shape());
  if (offsets.context().is_cpu())
    kernels::detail::check_offsets(offsets.to_vector<int64_t>(), indices.size(0),
                                   kernels::detail::OffsetsEnd::at_most, "offsets", "EmbeddingBag");
  const NDArray rows = embedding({weight.array(), detail::call_site()}, indices, padding_, false, false);
  const NDArray kept = padding_ < 0 ? rows : where((indices != padding_).expand_dims(-1), rows, 0);
  const NDArray places = arange(indices.size(0)).to(offsets.context());
  const NDArray bags = searchsorted(offsets.to(places.dtype()), places, true) - 1;
  const NDArray total =
      index_add(zeros({offsets.size(0), weight.shape()[1]}, rows.dtype(), rows.context()), bags, kept);
  if (mode_ == "sum") return total;
  const NDArray ones_in = (indices != padding_).to(rows.dtype()).expand_dims(-1);
  const NDArray count = index_add(zeros({offsets.size(0), 1}, rows.dtype(), rows.context()), bags, ones_in);
  return total / maximum(count, 1);
}

std::string EmbeddingBag::extra() const {
  return mx::detail::concat("rows=", weight.shape()[0], ", width=", weight.shape()[1], ", mode=", mode_,
                            padding_ < 0 ? "" : mx::detail::concat(", padding_idx=", padding_));
}

Bilinear::Bilinear(IntArg in1, IntArg in2, IntArg out, const BilinearOptions& options,
                   std::source_location where) try {
  MX_CHECK(in1 >= 0 && in2 >= 0 && out >= 0, InvalidArgument,
           "[Bilinear] expected sizes of 0 or more, got in1 = ", int64_t{in1}, ", in2 = ", int64_t{in2},
           " and out = ", int64_t{out});
  MX_CHECK(is_floating(options.dtype), InvalidArgument, "[Bilinear] expected a floating-point type, got ",
           options.dtype);
  weight = add_parameter("weight", empty({out, in1, in2}, options.dtype, options.context));
  if (options.bias) bias = add_parameter("bias", empty({out}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Bilinear::operator()(const NDArray& a, const NDArray& b, std::source_location where) const {
  const auto body = [this](std::span<const NDArray> in) {
    const Shape& w = weight.shape();
    Shape split = in[0].shape();
    MX_CHECK(in[0].rank() >= 1 && in[0].rank() == in[1].rank() && in[0].shape().back() == w[1] &&
                 in[1].shape().back() == w[2],
             InvalidArgument, "[Bilinear] expected arrays (.., ", w[1], ") and (.., ", w[2],
             ") of the same rank, got ", in[0].shape(), " and ", in[1].shape());
    // a times the matrix (in1, out in2) gives a vector for each k, whose product with b is y[k].
    const NDArray matrix = weight->move_axis(1, 0).reshape({w[1], w[0] * w[2]});
    split[split.rank() - 1] = w[0];
    split.push_back(w[2]);
    NDArray vectors = matmul(detail::at_call(in[0].reshape({-1, w[1]})), matrix).reshape(split);
    NDArray y = sum(vectors * in[1].expand_dims(-2), -1);
    return std::vector<NDArray>{bias.defined() ? y + bias : y};
  };
  return run({a, b}, body, where)[0];
}

void Bilinear::reset_parameters(Generator* generator) {
  const int64_t in = weight.shape()[1];
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  init::uniform_(weight, -bound, bound, generator);
  if (bias.defined()) init::uniform_(bias, -bound, bound, generator);
}

std::string Bilinear::extra() const {
  const Shape& w = weight.shape();
  return mx::detail::concat("in1=", w[1], ", in2=", w[2], ", out=", w[0],
                            bias.defined() ? "" : ", bias=false");
}

}  // namespace mx::nn
