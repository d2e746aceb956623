#include "nn/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/activations.h"
#include "nn/detail/call_site.h"
#include "nn/dropout.h"
#include "nn/init.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/segment.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sparse.h"

namespace mx::nn {

namespace detail {

/// The last graph that was normalised, and the result.
class NormCache {
 public:
  SparseCSR get(const SparseCSR& graph, const GcnNormOptions& options) {
    const std::array<NDArray, 3> arrays = {graph.pointers(), graph.columns(), graph.values()};
    std::array<uint32_t, 3> versions{};
    bool usable = true;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const mx::detail::ArrayImpl& array = arrays[i].impl();
      versions[i] = array.storage->version();
      usable = usable && !array.marked() && !array.storage->has_unseen_writers();
    }
    if (!usable) return gcn_norm(graph, options);
    const std::lock_guard lock(mutex_);
    bool same = result_.defined() && versions == versions_;
    for (size_t i = 0; i < arrays.size() && same; ++i) same = arrays[i].ref().get() == arrays_[i].ref().get();
    if (!same) {
      result_ = gcn_norm(graph, options);
      arrays_ = arrays;
      versions_ = versions;
    }
    return result_;
  }

 private:
  std::mutex mutex_;
  std::array<NDArray, 3> arrays_;  // keeps them alive, so that no other array gets their address
  std::array<uint32_t, 3> versions_{};
  SparseCSR result_;
};

}  // namespace detail

namespace {

void check_graph(const char* layer, const Shape& x, const SparseCSR& graph) {
  MX_CHECK(graph.defined() && graph.rows() == graph.width(), InvalidArgument, "[", layer,
           "] expected a graph (nodes, nodes), got ",
           graph.defined() ? mx::detail::concat("shape ", graph.shape()) : "an empty handle");
  MX_CHECK(x.rank() == 2 && x[0] == graph.rows(), InvalidArgument, "[", layer, "] expected features (",
           graph.rows(), ", channels), a row for each node, got shape ", x);
}

/// Adds an edge from each node to itself where there is none.
SparseCSR with_self_loops(const SparseCSR& graph, double weight) {
  const NDArray rows = graph.row_indices();
  const auto row = rows.to_vector<int64_t>(), column = graph.columns().to_vector<int64_t>();
  std::vector<bool> has(static_cast<size_t>(graph.rows()));
  for (size_t k = 0; k < row.size(); ++k)
    if (row[k] == column[k]) has[static_cast<size_t>(row[k])] = true;
  std::vector<int64_t> missing;
  for (size_t i = 0; i < has.size(); ++i)
    if (!has[i]) missing.push_back(static_cast<int64_t>(i));
  if (missing.empty()) return graph;
  const Context context = graph.context();
  const NDArray loops = array(missing, context),
                weights = full({static_cast<int64_t>(missing.size())}, weight, graph.dtype(), context);
  return SparseCSR::from_coo(concat(rows, loops), concat(graph.columns().to(i64), loops),
                             concat(graph.values(), weights), graph.shape());
}

}  // namespace

SparseCSR gcn_norm(const SparseCSR& graph, const GcnNormOptions& options) {
  check_graph("gcn_norm", {graph.defined() ? graph.rows() : 0, 0}, graph);
  const SparseCSR a = options.add_self_loops ? with_self_loops(graph, options.improved ? 2 : 1) : graph;
  const NDArray degree = segment_sum(a.values(), a.pointers());
  const NDArray connected = degree > 0;
  const NDArray scale = where(connected, 1 / sqrt(where(connected, degree, 1)), 0);
  return a.with_values(segment_expand(scale, a.pointers(), a.entries()) * a.values() *
                       take(scale, a.columns()));
}

GCNConv::GCNConv(IntArg in, IntArg out, const GCNConvOptions& options, std::source_location where) try
    : lin(in, out, LinearOptions{.bias = false, .context = options.context, .dtype = options.dtype}),
      options_(options),
      cache_(options.cached ? std::make_shared<detail::NormCache>() : nullptr) {
  add("lin", lin);
  if (options.bias) bias = add_parameter("bias", empty({out}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void GCNConv::reset_parameters(Generator* generator) {
  init::xavier_uniform_(lin.weight, 1, generator);
  if (bias.defined()) init::zeros_(bias);
}

SparseCSR GCNConv::normalised(const SparseCSR& graph) const {
  if (!options_.normalize) return graph;
  const GcnNormOptions norm{options_.add_self_loops, options_.improved};
  return cache_ != nullptr ? cache_->get(graph, norm) : gcn_norm(graph, norm);
}

NDArray GCNConv::propagate(const NDArray& x, const SparseCSR& graph) const {
  const NDArray y = matmul(graph.dtype() == x.dtype() ? graph : graph.to(x.dtype()), x);
  return bias.defined() ? y + bias : y;
}

NDArray GCNConv::forward(const NDArray& x, const SparseCSR& graph) {
  check_graph("GCNConv", x.shape(), graph);
  return propagate(lin(x), normalised(graph));
}

NDArray GCNConv::forward(const SparseCSR& x, const SparseCSR& graph) {
  check_graph("GCNConv", x.shape(), graph);
  return propagate(matmul(x, lin.weight->transpose()), normalised(graph));
}

std::string GCNConv::extra() const {
  std::string text = mx::detail::concat("in=", lin.in_features(), ", out=", lin.out_features());
  if (!bias.defined()) text += ", bias=false";
  if (!options_.normalize) text += ", normalize=false";
  if (!options_.add_self_loops) text += ", add_self_loops=false";
  if (options_.improved) text += ", improved=true";
  if (options_.cached) text += ", cached=true";
  return text;
}

SAGEConv::SAGEConv(IntArg in, IntArg out, const SAGEConvOptions& options, std::source_location where) try
    : lin_l(in, out, {.bias = options.bias, .context = options.context, .dtype = options.dtype}),
      lin_r(options.root_weight ? in : IntArg(0), options.root_weight ? out : IntArg(0),
            {.bias = false, .context = options.context, .dtype = options.dtype}),
      options_(options) {
  add("lin_l", lin_l);
  if (options.root_weight) add("lin_r", lin_r);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray SAGEConv::forward(const NDArray& x, const SparseCSR& graph) {
  check_graph("SAGEConv", x.shape(), graph);
  const NDArray& offsets = graph.pointers();
  const NDArray same = ones({graph.entries()}, x.dtype(), x.context());
  const NDArray total = csr_matmul(same, graph.columns(), offsets, x);
  const NDArray degree =
      maximum(offsets.slice(0, Slice{1, {}}) - offsets.slice(0, Slice{0, -1}), 1).to(x.dtype());
  const NDArray y = lin_l(total / degree.expand_dims(1));
  return options_.root_weight ? y + lin_r(x) : y;
}

std::string SAGEConv::extra() const {
  return mx::detail::concat("in=", lin_l.in_features(), ", out=", lin_l.out_features(),
                            options_.root_weight ? "" : ", root_weight=false");
}

namespace {

const GATConvOptions& checked_attention(const GATConvOptions& options) {
  MX_CHECK(options.heads >= 1, InvalidArgument, "[GATConv] expected at least one head, got ", options.heads);
  MX_CHECK(options.dropout >= 0 && options.dropout < 1, InvalidArgument,
           "[GATConv] expected a dropout from 0 to below 1, got ", options.dropout);
  return options;
}

}  // namespace

GATConv::GATConv(IntArg in, IntArg out, const GATConvOptions& options, std::source_location where) try
    : lin(in, checked_attention(options).heads * out,
          LinearOptions{.bias = false, .context = options.context, .dtype = options.dtype}),
      options_(options),
      out_(out) {
  const Shape heads{1, options.heads, out};
  add("lin", lin);
  att_src = add_parameter("att_src", empty(heads, options.dtype, options.context));
  att_dst = add_parameter("att_dst", empty(heads, options.dtype, options.context));
  if (options.bias)
    bias = add_parameter(
        "bias", empty({options.concat ? options.heads * out_ : out_}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void GATConv::reset_parameters(Generator* generator) {
  init::xavier_uniform_(lin.weight, 1, generator);
  // The last two dimensions are the fans: a matrix (heads, out).
  const double bound = std::sqrt(6.0 / static_cast<double>(std::max<int64_t>(1, options_.heads + out_)));
  init::uniform_(att_src, -bound, bound, generator);
  init::uniform_(att_dst, -bound, bound, generator);
  if (bias.defined()) init::zeros_(bias);
}

NDArray GATConv::forward(const NDArray& x, const SparseCSR& graph) {
  check_graph("GATConv", x.shape(), graph);
  const SparseCSR a = options_.add_self_loops ? with_self_loops(graph, 1) : graph;
  const int64_t nodes = a.rows();
  const NDArray h = lin(x).reshape({nodes, options_.heads, out_});
  const NDArray from = sum(h * att_src, -1), to = sum(h * att_dst, -1);  // (nodes, heads)
  const NDArray scores = take(from, a.columns()) + segment_expand(to, a.pointers(), a.entries());
  NDArray weights = segment_softmax(leaky_relu(scores, options_.negative_slope), a.pointers());
  if (train_mode() && options_.dropout > 0) weights = dropout(weights, options_.dropout);
  std::vector<NDArray> heads;
  for (int64_t k = 0; k < options_.heads; ++k)
    heads.push_back(csr_matmul(weights.select(1, k), a.columns(), a.pointers(), h.select(1, k)));
  const NDArray y = options_.concat ? concat(heads, 1) : mean(stack(heads, 0), 0);
  return bias.defined() ? y + bias : y;
}

std::string GATConv::extra() const {
  return mx::detail::concat("in=", lin.in_features(), ", out=", out_, ", heads=", options_.heads,
                            options_.concat ? "" : ", concat=false");
}

}  // namespace mx::nn
