// Autocast: mixed precision. Inside the scope, products compute in bf16 or f16, and operators that would lose
// accuracy compute in f32. Parameters stay in f32, and so do their gradients.
//
//   NDArray loss;
//   {
//     Autocast scope(bf16);                        // until the end of the block, on this thread
//     loss = nn::cross_entropy(net(x), labels);    // products in bf16, the loss in f32
//   }
//   loss.backward();
//
// Each operator has a rule (AutocastRule; autocast_rules.cc lists them), by which a call converts its inputs.
// Only f32, f16 and bf16 are converted: f64, integers and bool keep their types. Conversions are recorded, so
// a gradient arrives in the type that the array had before. An array with requires_grad_() is converted once
// for each scope, and kept with its conversion until the end of the scope; if it is changed in place, the
// next call converts it again. Assignments and operators that change an array in place (a += b) are not
// affected by the scope.
//
// A backward pass runs without autocast, even if it is started inside the scope: gradients are computed
// in the types of the forward operations. checkpoint() runs its function both times with the setting
// of its call. A scope belongs to one thread and must end there, in reverse order of the beginning; another
// end logs an error. A new thread has none. Names and the choice of operators follow torch.autocast.
//
// Thread-safety: scopes of different threads are independent; set_autocast_rule() may be called from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx {

struct Operator;

/// How a call inside an Autocast scope converts the inputs of an operator.
enum class AutocastRule : uint8_t {
  keep,    ///< nothing: the result is as accurate in any type, or the types have a meaning
  lower,   ///< f32, f16 and bf16 become the type of the scope: products, which are faster in it
  single,  ///< f16 and bf16 become f32: sums, exponentials, losses, normalisations
  widest,  ///< inputs of f32, f16 and bf16 get the widest of their types
};

struct AutocastOptions {
  bool enabled = true;      ///< false: pauses an outer scope, as torch.autocast(enabled=False) does
  bool cache_casts = true;  ///< convert an array with requires_grad_() once for each scope, not at each call
};

namespace detail {
struct AutocastState;
}  // namespace detail

class Autocast {
 public:
  /// Throws InvalidArgument for a type other than bf16 and f16.
  explicit Autocast(DType dtype = bf16, const AutocastOptions& options = {},
                    std::source_location where = std::source_location::current());
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::unique_ptr<detail::AutocastState> state_;
  detail::AutocastState* before_;
};

/// Returns the type of the innermost scope of this thread; empty if there is none, or if it is not enabled.
std::optional<DType> autocast_dtype();

/// Returns the rule of an operator; `keep` for one that has no rule.
AutocastRule autocast_rule(const Operator& op);
/// Sets the rule of an operator that a program defines. The record must live as long as the process. Throws
/// InvalidArgument for an operator of this source tree.
void set_autocast_rule(const Operator& op, AutocastRule rule);

namespace detail {

/// The state of the innermost scope of this thread; null: none, or it is not enabled.
inline thread_local constinit AutocastState* autocast_state = nullptr;

/// Pauses autocast on this thread.
class AutocastPause {
 public:
  AutocastPause() : before_(autocast_state) { autocast_state = nullptr; }
  ~AutocastPause() { autocast_state = before_; }
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  AutocastState* const before_;
};

/// The setting of an earlier moment, with a cache of its own, for the two runs of a checkpointed function.
class AutocastSetting {
 public:
  AutocastSetting();  ///< the setting of this thread now
  /// Sets it until the end of the scope.
  class Scope {
   public:
    explicit Scope(const AutocastSetting& setting);

   private:
    Autocast scope_;
  };

 private:
  std::optional<DType> dtype_;
  bool cache_casts_ = true;
};

/// Converts the inputs of a call by the rule of the operator. Precondition: autocast_state is not null.
void autocast_inputs(const Operator& op, std::vector<NDArray>& inputs, std::source_location where);

}  // namespace detail
}  // namespace mx
