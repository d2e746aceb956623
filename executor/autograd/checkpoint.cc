// A checkpointed call is one node. Its edges are those of the inputs, followed by the frontier: the outputs
// of nodes that existed before the call and that the function's own nodes lead to (parameters, for example).
// The function's nodes are dropped after the call, and with them the values that they saved.
#include "executor/autograd/checkpoint.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/base/check.h"
#include "executor/autograd/backward.h"
#include "executor/autograd/function_node.h"
#include "executor/autograd/own_memory.h"
#include "executor/autograd/saved_value_hooks.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/autocast.h"
#include "operators/random.h"

namespace mx {
namespace detail {
namespace {

/// The default generators that a function with these inputs can be expected to use.
std::vector<Context> devices_of(std::span<const NDArray> inputs) {
  std::vector<Context> devices{cpu()};
  for (const NDArray& input : inputs)
    if (std::ranges::find(devices, input.context()) == devices.end()) devices.push_back(input.context());
  return devices;
}

/// The states of default generators at one moment.
class RandomStates {
 public:
  explicit RandomStates(const std::vector<Context>& devices) {
    const NoGrad pause;
    for (const Context& device : devices)
      states_.emplace_back(device, default_generator(device).state().clone());
  }
  void restore() const {
    const NoGrad pause;
    for (const auto& [device, state] : states_) {
      NDArray target = default_generator(device).state();
      target.copy_from(state);
    }
  }
  std::vector<Context> devices() const {
    std::vector<Context> devices;
    for (const auto& [device, state] : states_) devices.push_back(device);
    return devices;
  }

 private:
  std::vector<std::pair<Context, NDArray>> states_;
};

/// Rewinds default generators for a scope.
class Rewound {
 public:
  explicit Rewound(const RandomStates& states) : now_(states.devices()) { states.restore(); }
  ~Rewound() { now_.restore(); }
  Rewound(const Rewound&) = delete;
  Rewound& operator=(const Rewound&) = delete;

 private:
  const RandomStates now_;
};

/// The training mode of an earlier moment, for a scope.
class EarlierMode {
 public:
  explicit EarlierMode(std::optional<bool> mode) : before_(std::exchange(training_mode, mode)) {}
  ~EarlierMode() { training_mode = before_; }
  EarlierMode(const EarlierMode&) = delete;
  EarlierMode& operator=(const EarlierMode&) = delete;

 private:
  const std::optional<bool> before_;
};

/// One run of the function: its results, and where the nodes that it made lead.
struct Run {
  std::vector<Edge> begins;      // the identity nodes of the recorded inputs; one edge per input
  std::vector<NDArray> outputs;  // edges lead to the run's nodes
  uint64_t scope = 0;            // of the run's nodes
  std::vector<Edge> frontier;    // in the order in which a walk from the outputs finds them
};

/// Edges, for look-up: the nodes and their outputs.
using EdgeSet = std::set<std::pair<const Node*, uint32_t>>;
std::pair<const Node*, uint32_t> ends_of(const Edge& edge) { return {edge.node.get(), edge.output}; }

/// Finds the frontier: edges from nodes of the scope to other nodes. `known`: the frontier of the first run,
/// or null. A view that the function has kept from the first run is not in it, so the walk goes on through
/// its node. Not recursive, since chains may be long.
void find_frontier(Run& run, const std::vector<Edge>* known) {
  std::unordered_set<const Node*> seen;
  for (const Edge& begin : run.begins) seen.insert(begin.node.get());
  std::vector<Node*> path;
  EdgeSet found, first;
  if (known != nullptr)
    for (const Edge& edge : *known) first.insert(ends_of(edge));
  const auto enter = [&](const Edge& edge) {
    if (!edge || seen.contains(edge.node.get())) return;
    const bool kept_view = known != nullptr && edge.node->is_view() && !first.contains(ends_of(edge));
    if (edge.node->scope() == run.scope || kept_view) {
      seen.insert(edge.node.get());
      path.push_back(edge.node.get());
      return;
    }
    if (found.insert(ends_of(edge)).second) run.frontier.push_back(edge);
  };
  for (const NDArray& output : run.outputs) enter(edge_of(output.impl()));
  while (!path.empty()) {
    Node* const node = path.back();
    path.pop_back();
    for (const Edge& edge : node->edges()) enter(edge);
  }
}

/// Precondition: each edge is in a list once.
bool same_edges(const std::vector<Edge>& a, const std::vector<Edge>& b) {
  EdgeSet known;
  for (const Edge& edge : a) known.insert(ends_of(edge));
  return a.size() == b.size() &&
         std::ranges::all_of(b, [&](const Edge& edge) { return known.contains(ends_of(edge)); });
}

/// Runs the function, recording. `edges` are those to which the inputs' gradients flow; an edge without a
/// node stands for an input that is not recorded. Without `connect`, recorded inputs begin the graph.
///
/// The cache of an Autocast scope outside of the call is not used: its conversions of parameters would be
/// part of the frontier in one run, but not in the other.
Run run_function(const CheckpointFunction& f, const AutocastSetting& setting,
                 std::span<const Ref<ArrayImpl>> inputs, std::span<const Edge> edges, bool connect,
                 const std::vector<Edge>* known) {
  Run run;
  std::vector<NDArray> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    run.begins.emplace_back();
    if (edges[i]) {
      std::vector<Edge> before(1);
      if (connect) before[0] = edges[i];
      run.begins[i].node = make_node<FunctionNode>("checkpoint_input", std::move(before), 1,
                                                   [](const Step& step) { step.results[0] = step.heads[0]; });
    }
    arguments.push_back(with_edge(*inputs[i], run.begins[i]));
  }
  const EnableGrad on;
  const NodeScope scope;
  const AutocastSetting::Scope autocast(setting);
  run.outputs = f(arguments);
  run.scope = scope.id();
  for (size_t i = 0; i < run.outputs.size(); ++i)
    MX_CHECK(run.outputs[i].defined(), InvalidArgument,
             "[checkpoint] expected a function that returns arrays, got an empty handle as result ", i);
  find_frontier(run, known);
  return run;
}

/// One call of checkpoint(), which its node keeps.
class CheckpointCall {
 public:
  CheckpointCall(CheckpointFunction f, std::span<const NDArray> inputs, const CheckpointOptions& options)
      : f_(std::move(f)), mode_(training_mode) {
    for (const NDArray& input : inputs) {
      inputs_.emplace_back(input.impl());
      input_edges_.push_back(input.impl().recorded() ? edge_of(input.impl()) : Edge{});
    }
    if (options.same_random_numbers) random_.emplace(devices_of(inputs));
  }

  /// The first run. Returns outputs with edges to the node of the call if anything is recorded.
  static std::vector<NDArray> run(const std::shared_ptr<CheckpointCall>& call) {
    std::vector<NDArray> outputs;
    std::vector<Edge> edges = call->input_edges_;
    const uint64_t begin = Storage::new_moment();
    {
      const SavedValueScope no_hooks(nullptr);  // what the nodes of this run save is dropped at once
      const Run run =
          run_function(call->f_, call->autocast_, call->arrays(), call->input_edges_, false, nullptr);
      call->frontier_ = run.frontier;
      for (const Edge& edge : run.frontier)
        call->leaf_versions_.push_back(edge.node->leaf() ? static_cast<Leaf&>(*edge.node).version() : 0);
      edges.insert(edges.end(), run.frontier.begin(), run.frontier.end());
      call->each_changed_input([](size_t i, const SavedValue&, uint32_t) {
        throw InvalidState(concat(
            "[checkpoint] expected a function that does not change its inputs in place, got one that has "
            "changed input ",
            i));
      });
      for (const NDArray& output : run.outputs) {
        outputs.push_back(own_memory(output, begin, outputs));
        call->recorded_outputs_.push_back(edge_of(output.impl()) ? 1 : 0);
      }
    }  // the nodes of the run, and what they saved, are destroyed here
    if (std::ranges::none_of(call->recorded_outputs_, [](uint8_t recorded) { return recorded != 0; }))
      return outputs;
    const Ref<Node> node = make_node<FunctionNode>("checkpoint", std::move(edges), outputs.size(),
                                                   [call](const Step& step) { call->back(step); });
    for (size_t i = 0; i < outputs.size(); ++i)
      if (call->recorded_outputs_[i] != 0) set_edge(outputs[i].impl(), node, static_cast<uint32_t>(i));
    return outputs;
  }

 private:
  /// Calls f(i, input, changes) for each input that has been changed in place since the call began.
  template <class F>
  void each_changed_input(const F& f) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (const uint32_t changes = inputs_[i].changes(*inputs_[i].array); changes != 0)
        f(i, inputs_[i], changes);
  }

  std::vector<Ref<ArrayImpl>> arrays() const {
    std::vector<Ref<ArrayImpl>> arrays;
    for (const SavedValue& input : inputs_) arrays.push_back(input.array);
    return arrays;
  }

  void check_unchanged() const {
    each_changed_input([](size_t i, const SavedValue& input, uint32_t changes) {
      throw_changed(*input.array, changes, concat("input ", i, " of [checkpoint]"), "the call");
    });
    for (size_t i = 0; i < frontier_.size(); ++i) {
      if (!frontier_[i].node->leaf()) continue;
      const uint32_t version = static_cast<const Leaf&>(*frontier_[i].node).version();
      MX_CHECK(version == leaf_versions_[i], InvalidState,
               "[checkpoint] expected the arrays with requires_grad_() that the function uses to be "
               "unchanged since "
               "the call, got one that was changed in place ",
               version - leaf_versions_[i], " times");
    }
  }

  void back(const Step& step) const {
    check_unchanged();
    const EarlierMode mode(mode_);
    std::optional<Rewound> rewound;
    if (random_) rewound.emplace(*random_);
    const Run run = run_function(f_, autocast_, arrays(), input_edges_, step.recorded, &frontier_);
    rewound.reset();
    MX_CHECK(run.outputs.size() == step.heads.size() && same_edges(run.frontier, frontier_), InvalidState,
             "[checkpoint] expected the function to use the same recorded arrays in the backward pass as at "
             "the call, "
             "and to return as many results, got ",
             run.frontier.size(), " recorded arrays besides the inputs and ", run.outputs.size(),
             " results instead of ", frontier_.size(), " and ", step.heads.size(), ", or other arrays");
    std::vector<NDArray> outputs, heads;
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (!step.heads[i].defined() || !edge_of(run.outputs[i].impl())) continue;
      outputs.push_back(run.outputs[i]);
      heads.push_back(step.heads[i]);
    }
    if (outputs.empty()) return;
    std::vector<Edge> targets;
    std::vector<size_t> places;  // of the targets among the edges of the node
    for (size_t i = 0; i < step.wanted.size(); ++i) {
      const Edge edge = i < inputs_.size() ? run.begins[i] : frontier_[i - inputs_.size()];
      if (!edge) continue;
      targets.push_back(edge);
      places.push_back(i);
    }
    std::vector<NDArray> found = gradients_at(outputs, targets, heads, {.create_graph = step.recorded});
    for (size_t i = 0; i < found.size(); ++i)
      if (step.wanted[places[i]] != 0) step.results[places[i]] = std::move(found[i]);
  }

  const CheckpointFunction f_;
  const std::optional<bool> mode_;
  const AutocastSetting autocast_;
  std::vector<SavedValue> inputs_;
  std::vector<Edge> input_edges_, frontier_;
  std::vector<uint32_t> leaf_versions_;  // one per edge of the frontier
  std::vector<uint8_t> recorded_outputs_;
  std::optional<RandomStates> random_;
};

}  // namespace
}  // namespace detail

std::vector<NDArray> checkpoint(CheckpointFunction f, const std::vector<NDArray>& inputs,
                                const CheckpointOptions& options, std::source_location where) try {
  MX_CHECK(f != nullptr, InvalidArgument, "[checkpoint] expected a function, got an empty one");
  for (size_t i = 0; i < inputs.size(); ++i)
    MX_CHECK(inputs[i].defined(), InvalidArgument,
             "[checkpoint] expected arrays, got an empty handle as input ", i);
  if (!grad_enabled()) return f(inputs);
  return detail::CheckpointCall::run(std::make_shared<detail::CheckpointCall>(std::move(f), inputs, options));
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
