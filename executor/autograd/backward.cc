#include "executor/autograd/backward.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "executor/autograd/grad_cell.h"
#include "ndarray/grad_mode.h"
#include "operators/autocast.h"
#include "operators/elementwise_binary.h"
#include "operators/row_sparse.h"

namespace mx::detail {
namespace {

// A list as long as a node has inputs or outputs. A short one needs no allocation.
template <class T>
class InlineList {
 public:
  explicit InlineList(size_t n) : size_(n) {
    if (n > kInline) heap_.resize(n);
  }
  std::span<T> span() { return {size_ > kInline ? heap_.data() : inline_, size_}; }

 private:
  static constexpr size_t kInline = 4;
  size_t size_;
  T inline_[kInline]{};
  std::vector<T> heap_;
};

// Returns the array, or another of the same memory without a node if it has one. A pass without create_graph
// does this to all arrays that come from the program. Otherwise a view of such an array would have no base,
// because nothing is recorded, and is_own() would take it for an array of its own.
NDArray without_node(NDArray array) {
  const ArrayImpl& impl = *array.ref();  // not impl(), which would make a row-sparse array dense
  return impl.marked() ? NDArray(without_edge(impl)) : std::move(array);
}

// The gradient of one output of a node, as far as it has been summed up. `own`: the pass holds the only
// handle to the array, so it may add to it in place.
struct Head {
  NDArray array;
  bool own = false;
};

// Returns true if a leaf, or the caller, may keep the array and change it later. `recorded`: the pass has
// create_graph. Then the graph of the gradients may have saved the array, so that a change would spoil it.
// That graph does not save a row-sparse array, and a copy would make it dense.
bool may_keep(const Head& head, bool recorded) { return head.own && (!recorded || row_sparse(head.array)); }

// The arrays whose gradients gradients() asks for, and which nodes lead to them.
class Targets {
 public:
  /// With `stop`, no gradient flows beyond a target.
  explicit Targets(bool stop) : stop_(stop) {}
  void add(Edge edge) {
    least_ = std::min(least_, edge.node->order());
    nodes_.insert(edge.node.get());
    edges_.push_back(std::move(edge));
    found_.emplace_back();
  }
  /// Finds out which nodes reachable from `from` lead to a target. Not recursive, since chains may be long.
  void search(Node* from) {
    std::vector<std::pair<Node*, size_t>> path;
    const auto enter = [&](Node* node) {
      if (node->order() < least_) return;
      const auto [place, first] = leads_.try_emplace(node, nodes_.contains(node));
      if (!first) return;
      if (!ends_at(node)) path.emplace_back(node, 0);
      others_ = others_ || (node->leaf() && !place->second);
    };
    enter(from);
    while (!path.empty()) {
      auto& [node, next] = path.back();
      const std::span<const Edge> edges = node->edges();
      if (next < edges.size()) {
        Node* const child = edges[next++].node.get();
        if (child != nullptr) enter(child);
        continue;
      }
      bool& leads = leads_[node];
      for (const Edge& edge : edges) leads = leads || (edge && leads_to(edge.node.get()));
      path.pop_back();
    }
  }
  bool leads_to(const Node* node) const {
    const auto known = leads_.find(node);
    return known != leads_.end() && known->second;
  }
  /// Returns true if no gradient flows beyond the node.
  bool ends_at(const Node* node) const { return stop_ && nodes_.contains(node); }
  /// Returns true if the search has reached leaves that are not targets.
  bool others() const { return others_; }
  /// Stores the gradients of those targets that are outputs of this node. `recorded`: as of may_keep().
  void take(const Node& node, std::span<Head> heads, bool recorded) {
    if (!nodes_.contains(&node)) return;
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (edges_[i].node.get() != &node) continue;
      Head& head = heads[edges_[i].output];
      // The caller may change its gradient in place. So a gradient is copied if it is also used elsewhere
      // (for example as a head of the caller or as the gradient of another target) or repeats elements.
      if (!head.array.defined()) continue;
      const bool keep = may_keep(head, recorded) && !head.array.impl().repeats();
      found_[i] = keep ? head.array : head.array.clone();
      head.own = false;
    }
  }
  std::vector<NDArray> found() { return std::move(found_); }

 private:
  std::vector<Edge> edges_;
  std::vector<NDArray> found_;
  std::unordered_set<const Node*> nodes_;
  std::unordered_map<const Node*, bool> leads_;
  uint64_t least_ = UINT64_MAX;
  const bool stop_;
  bool others_ = false;
};

// One backward pass. It visits nodes by their order numbers, the largest first. A node's number is larger
// than those of the nodes it leads to, so every contribution to a node has arrived when the node is visited.
class Pass {
 public:
  Pass(const BackwardOptions& options, Targets* targets)
      : keep_(options.retain_graph || options.create_graph),
        recorded_(options.create_graph),
        targets_(targets) {}
  ~Pass() {
    for (Pending& p : pending_)
      if (p.node) forget(p);
  }

  void add(const Edge& edge, NDArray gradient, bool own) {
    if (!own) gradient = apart_from_gradients(std::move(gradient));
    if (!recorded_) gradient = without_node(std::move(gradient));
    Pending& p = pending_of(edge.node);
    Head& head = p.heads.empty() ? p.head : p.heads[edge.output];
    if (!head.array.defined()) {
      head = {std::move(gradient), own};
    } else if (NDArray rows = sum_if_row_sparse(head.array, gradient); rows.defined()) {
      head = {std::move(rows), true};
    } else if (head.own && !recorded_) {
      head.array += gradient;
    } else {
      head = {head.array + gradient, true};
    }
  }

  /// Counts the uses of leaves with hooks that run after their gradients were updated. When the pass has
  /// visited all nodes that use such a leaf, it visits the leaf at once instead of at its end, so that the
  /// hook may free the gradient. Call it before the first add(). Not recursive, since chains may be long.
  void count_uses(std::span<const NDArray> outputs) {
    if (targets_ != nullptr || !Node::any_post_hooked()) return;
    std::unordered_set<const Node*> seen;
    std::vector<Node*> path;
    const auto enter = [&](Node* node) {
      if (node->leaf() && node->post_hooked()) ++uses_left_[node];
      if (seen.insert(node).second) path.push_back(node);
    };
    for (const NDArray& output : outputs)
      if (const Edge edge = edge_of(output.impl()); edge && !edge.node->leaf()) enter(edge.node.get());
    while (!path.empty()) {
      Node* const node = path.back();
      path.pop_back();
      for (const Edge& edge : node->edges())
        if (edge) enter(edge.node.get());
    }
  }

  void run() {
    while (!queue_.empty()) {
      const auto [order, arrival, place] = queue_.top();
      queue_.pop();
      if (!pending_[place].node || pending_[place].arrival != arrival) continue;  // a leaf visited earlier
      Pending p = std::move(pending_[place]);
      pending_[place] = {};
      forget(p);
      free_.push_back(place);
      visit(p);
      if (!uses_left_.empty()) used(*p.node);
    }
  }

 private:
  struct Pending {
    Ref<Node> node;
    Head head;                // if the node has a single output
    std::vector<Head> heads;  // if it has several
    uint64_t arrival = 0;     // of its entry in the queue
  };
  struct Entry {
    uint64_t order;
    uint64_t arrival;
    size_t place;
    bool operator<(const Entry& other) const {
      return order != other.order ? order < other.order : arrival > other.arrival;
    }
  };

  // Returns the entry of this pass for a node. The slot in the node belongs to one pass at a time; other
  // passes find their entries in elsewhere_. elsewhere_ is searched before the slot is acquired: the other
  // pass may free the slot between two contributions of this one, and acquiring it then would split the
  // gradient over two entries.
  Pending& pending_of(const Ref<Node>& node) {
    if (node->pass.load(std::memory_order_relaxed) == this) return pending_[node->place_in_pass];
    if (!elsewhere_.empty())
      if (const auto known = elsewhere_.find(node.get()); known != elsewhere_.end())
        return pending_[known->second];
    const void* expected = nullptr;
    const bool here = node->pass.compare_exchange_strong(expected, this, std::memory_order_acquire);
    size_t place = pending_.size();
    if (free_.empty()) {
      pending_.emplace_back();
    } else {
      place = free_.back();
      free_.pop_back();
    }
    if (here) {
      node->place_in_pass = static_cast<uint32_t>(place);
    } else {
      elsewhere_.emplace(node.get(), place);
    }
    pending_[place].node = node;
    if (node->outputs() > 1) pending_[place].heads.resize(node->outputs());
    pending_[place].arrival = arrivals_;
    queue_.push({node->order(), arrivals_++, place});
    return pending_[place];
  }
  // Counts the uses of leaves by a node that was visited. A leaf that no other node will use goes to the top
  // of the queue; its old entry there is passed over later.
  void used(const Node& node) {
    for (const Edge& edge : node.edges()) {
      const auto left = edge ? uses_left_.find(edge.node.get()) : uses_left_.end();
      if (left == uses_left_.end() || --left->second != 0) continue;
      const size_t place = place_of(*edge.node);
      if (place == kNoPlace) continue;
      Pending& p = pending_[place];
      p.arrival = arrivals_;
      queue_.push({UINT64_MAX, arrivals_++, place});
    }
  }
  static constexpr size_t kNoPlace = SIZE_MAX;
  // Returns the place of the entry of a node in this pass, or kNoPlace if it has none.
  size_t place_of(const Node& node) const {
    if (node.pass.load(std::memory_order_relaxed) == this) return node.place_in_pass;
    const auto known = elsewhere_.find(&node);
    return known == elsewhere_.end() ? kNoPlace : known->second;
  }
  void forget(Pending& p) {
    if (p.node->pass.load(std::memory_order_relaxed) == this) {
      p.node->pass.store(nullptr, std::memory_order_release);
    } else {
      elsewhere_.erase(p.node.get());
    }
  }

  void visit(Pending& p) {
    Node& node = *p.node;
    const std::span<Head> heads = p.heads.empty() ? std::span<Head>(&p.head, 1) : std::span<Head>(p.heads);
    // The hooks of such a node run in the pass that goes on from it.
    if (targets_ != nullptr && targets_->ends_at(&node)) return targets_->take(node, heads, recorded_);
    if (node.attached())
      for (uint32_t i = 0; i < heads.size(); ++i) {
        bool touched = false;
        if (heads[i].array.defined())
          heads[i].array = node.apply_attachments(i, std::move(heads[i].array), touched);
        heads[i].own = heads[i].own && !touched;
        if (touched && !recorded_) heads[i].array = without_node(std::move(heads[i].array));
      }
    if (targets_ != nullptr) targets_->take(node, heads, recorded_);
    if (node.leaf()) {
      const auto cell = targets_ == nullptr ? static_cast<Leaf&>(node).cell() : nullptr;
      if (cell == nullptr) return;
      const bool keep = may_keep(heads[0], recorded_);
      cell->accumulate(std::move(heads[0].array), keep);
      if (node.post_hooked()) node.call_post_hooks(cell);
      return;
    }
    const std::span<const Edge> edges = node.edges();
    InlineList<uint8_t> wanted(edges.size());
    bool any = false;
    for (size_t i = 0; i < edges.size(); ++i) {
      wanted.span()[i] = edges[i] && (targets_ == nullptr || targets_->leads_to(edges[i].node.get())) ? 1 : 0;
      any = any || wanted.span()[i] != 0;
    }
    if (!any) return;
    InlineList<NDArray> arrays(heads.size()), results(edges.size());
    for (size_t i = 0; i < heads.size(); ++i) arrays.span()[i] = heads[i].array;
    node.back({node, arrays.span(), wanted.span(), results.span(), keep_, recorded_});
    // Before any result moves on: two edges may get the same array.
    InlineList<uint8_t> own(edges.size());
    for (size_t i = 0; i < edges.size(); ++i)
      own.span()[i] =
          results.span()[i].defined() && is_own(results.span()[i], node, heads, results.span()) ? 1 : 0;
    for (size_t i = 0; i < edges.size(); ++i) {
      NDArray& result = results.span()[i];
      if (wanted.span()[i] != 0 && result.defined()) add(edges[i], std::move(result), own.span()[i] != 0);
    }
  }

  // Returns true if no other object holds the array that back() returned, so the pass may change it in place.
  static bool is_own(const NDArray& result, const Node& node, std::span<const Head> heads,
                     std::span<const NDArray> results) {
    const ArrayImpl* const array = result.ref().get();
    if (!node.returns_fresh_arrays() || array->base) return false;
    if (std::count_if(results.begin(), results.end(),
                      [&](const NDArray& other) { return other.ref().get() == array; }) != 1)
      return false;
    for (const Head& head : heads)
      if (head.array.ref().get() == array) return head.own;
    return true;
  }

  bool keep_, recorded_;
  Targets* targets_;
  std::vector<Pending> pending_;
  std::vector<size_t> free_;
  std::priority_queue<Entry> queue_;
  std::unordered_map<const Node*, size_t> elsewhere_;  // entries of nodes whose slot belonged to another pass
  std::unordered_map<const Node*, size_t> uses_left_;  // of leaves: nodes that the pass has not visited
  uint64_t arrivals_ = 0;
  const AutocastPause pause_;  // gradients are computed in the types of the forward operations
};

// The head gradient of an output: the given one, or a one for an output of one element.
Head head_of(const NDArray& output, const NDArray& given, const char* op) {
  if (!given.defined()) {
    MX_CHECK(output.numel() == 1, InvalidArgument, "[", op,
             "] expected a head gradient for an output of more than one element, got none for shape ",
             output.shape());
    return {ones_like(output), true};
  }
  MX_CHECK(given.shape() == output.shape(), InvalidArgument, "[", op,
           "] expected a head gradient of the array's shape ", output.shape(), ", got ", given.shape());
  MX_CHECK(is_floating(given.dtype()), InvalidArgument, "[", op,
           "] expected a head gradient of a floating-point type, got ", given.dtype());
  MX_CHECK(given.context() == output.context(), InvalidArgument, "[", op,
           "] expected a head gradient on the array's device ", output.context(), ", got one on ",
           given.context());
  return {given.to(output.dtype()), false};
}

void start(Pass& pass, std::span<const NDArray> outputs, std::span<const NDArray> heads, const char* op) {
  MX_CHECK(heads.empty() || heads.size() == outputs.size(), InvalidArgument, "[", op,
           "] expected a head gradient for each of ", outputs.size(), " outputs, got ", heads.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Edge edge = edge_of(outputs[i].impl());
    MX_CHECK(edge, InvalidState, "[", op,
             "] expected an array that depends on one with requires_grad_(), got one of shape ",
             outputs[i].shape(), " for which nothing was recorded");
    Head head = head_of(outputs[i], heads.empty() ? NDArray() : heads[i], op);
    pass.add(edge, std::move(head.array), head.own);
  }
}

}  // namespace

void go_back(std::span<const NDArray> outputs, std::span<const NDArray> heads,
             const BackwardOptions& options) {
  RecordingScope scope(options.create_graph);
  Pass pass(options, nullptr);
  pass.count_uses(outputs);
  start(pass, outputs, heads, "backward");
  pass.run();
}

std::vector<NDArray> gradients_of(std::span<const NDArray> outputs, std::span<const NDArray> inputs,
                                  std::span<const NDArray> heads, BackwardOptions options, bool* others) {
  Targets targets(false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Edge edge = edge_of(inputs[i].impl());
    MX_CHECK(edge, InvalidState, "[grad] expected inputs with requires_grad_(), got input ", i, " of shape ",
             inputs[i].shape(), " for which nothing was recorded");
    targets.add(std::move(edge));
  }
  for (const NDArray& output : outputs)
    if (const Edge edge = edge_of(output.impl())) targets.search(edge.node.get());
  if (others != nullptr) {
    *others = targets.others();
    options.create_graph = options.create_graph || *others;
  }
  RecordingScope scope(options.create_graph);
  Pass pass(options, &targets);
  start(pass, outputs, heads, "grad");
  pass.run();
  return targets.found();
}

std::vector<NDArray> gradients_at(std::span<const NDArray> outputs, std::span<const Edge> inputs,
                                  std::span<const NDArray> heads, const BackwardOptions& options) {
  Targets targets(true);
  for (const Edge& edge : inputs) targets.add(edge);
  for (const NDArray& output : outputs) targets.search(edge_of(output.impl()).node.get());
  RecordingScope scope(options.create_graph);
  Pass pass(options, &targets);
  start(pass, outputs, heads, "backward");
  pass.run();
  return targets.found();
}

}  // namespace mx::detail
