// Layers for graphs: GCNConv, SAGEConv and GATConv.
//
// A graph is a SparseCSR (operators/sparse_csr.h) of shape (nodes, nodes): row i lists the nodes from which
// node i gets messages, and the values are the weights of these edges. An undirected graph lists each edge
// twice.
//
//   SparseCSR graph = SparseCSR::from_edges(rows, columns, {nodes, nodes});
//   nn::GCNConv first(1433, 16), second(16, 7);
//   NDArray y = second(relu(first(x, graph)), graph);       // (nodes, 7) for x (nodes, 1433)
//
// Names, defaults and initialisation are those of PyTorch Geometric, so its state dictionaries load. All
// throw InvalidArgument if x has not a row for each node, or if the graph is not square. The weights of the
// edges get gradients if they require them.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>

#include "nn/linear.h"
#include "nn/module.h"
#include "operators/random.h"
#include "operators/sparse_csr.h"

namespace mx::nn {

struct GcnNormOptions {
  bool add_self_loops = true;  ///< adds an edge from each node to itself if the graph has none
  bool improved = false;       ///< these edges get the weight 2 instead of 1
};

/// Returns D^-1/2 (A + I) D^-1/2 for the graph A, where D has the sums of the rows of A + I: the
/// normalisation of Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks"
/// (ICLR 2017). A node without edges gets zeros. Waits for the graph's indices to add the self-loops.
SparseCSR gcn_norm(const SparseCSR& graph, const GcnNormOptions& options = {});

struct GCNConvOptions {
  bool bias = true;
  bool normalize = true;       ///< false: the graph is used as it is
  bool add_self_loops = true;  ///< of gcn_norm()
  bool improved = false;       ///< of gcn_norm()
  /// Keeps the last normalised graph, and uses it as long as the calls pass the same, unchanged graph whose
  /// weights need no gradients. Results are the same.
  bool cached = false;
  Context context = cpu();
  DType dtype = f32;
};

namespace detail {
class NormCache;
}  // namespace detail

/// y = N x weight' + bias, with N = gcn_norm(graph). Parameters: lin.weight (out, in), by xavier_uniform_,
/// and bias (out,), zeros.
class GCNConv : public ModuleOf<GCNConv> {
 public:
  /// Throws InvalidArgument for a negative size and for a type that is not floating point.
  GCNConv(IntArg in, IntArg out, const GCNConvOptions& options = {},
          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x, const SparseCSR& graph);
  /// The same for sparse features, (nodes, in), of which only the entries are multiplied.
  NDArray forward(const SparseCSR& x, const SparseCSR& graph);
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Linear lin;
  Parameter bias;

 private:
  SparseCSR normalised(const SparseCSR& graph) const;
  NDArray propagate(const NDArray& x, const SparseCSR& graph) const;

  GCNConvOptions options_;
  std::shared_ptr<detail::NormCache> cache_;
};

struct SAGEConvOptions {
  bool root_weight = true;  ///< adds the transformed features of the node itself
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// GraphSAGE with the mean: y[i] = lin_l(mean of x over the neighbours of i) + lin_r(x[i]), of Hamilton, Ying
/// and Leskovec, "Inductive Representation Learning on Large Graphs" (NeurIPS 2017). The weights of the edges
/// are not used; a node without neighbours has the mean 0. Parameters: those of lin_l, and of lin_r, which
/// has no bias.
class SAGEConv : public ModuleOf<SAGEConv> {
 public:
  SAGEConv(IntArg in, IntArg out, const SAGEConvOptions& options = {},
           std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x, const SparseCSR& graph);
  std::string extra() const override;

  Linear lin_l;
  Linear lin_r;

 private:
  SAGEConvOptions options_;
};

struct GATConvOptions {
  int64_t heads = 1;
  bool concat = true;  ///< the outputs of the heads stand side by side; false: their mean
  double negative_slope = 0.2;
  double dropout = 0;  ///< of the attention, while training
  bool add_self_loops = true;
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// Attention over neighbours, of Velickovic et al., "Graph Attention Networks" (ICLR 2018): head h of y[i] is
/// the sum over the neighbours j of softmax_j(leaky_relu(att_src . h_j + att_dst . h_i)) h_j with h = lin(x).
/// The weights of the edges are not used. Parameters: lin.weight (heads out, in), att_src and att_dst (1,
/// heads, out), all by xavier_uniform_ (fans as in PyTorch Geometric), and bias, zeros. y is (nodes, heads
/// out), or (nodes, out) without `concat`.
class GATConv : public ModuleOf<GATConv> {
 public:
  /// Throws InvalidArgument also for less than one head, and for a dropout that is not from 0 to below 1.
  GATConv(IntArg in, IntArg out, const GATConvOptions& options = {},
          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x, const SparseCSR& graph);
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Linear lin;
  Parameter att_src, att_dst, bias;

 private:
  GATConvOptions options_;
  int64_t out_;
};

}  // namespace mx::nn
