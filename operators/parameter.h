// Parameter: a handle to a slot of a module, which holds an array; and lists of Parameters, which optimisers
// take.
//
//   struct Scale : nn::Module {
//     Parameter factor;
//     explicit Scale(int64_t d) : factor(add_parameter("factor", ones({d}))) {}
//     NDArray forward(const NDArray& x) { return x * factor; }
//   };
//
// Copies of a Parameter refer to the same slot. The shape, type and device of an NDArray never change,
// so moving a module to a device or to another type puts another array into the slot. Every copy of the
// Parameter refers to the new array; an NDArray that was taken from the slot earlier keeps the old one.
// Modules, optimisers and trainers therefore keep Parameters, not NDArrays. A buffer (an array that belongs
// to a module and is not trained) has such a slot as well.
//
// A Parameter may be passed wherever a function takes an array. Thread-safety: any number of threads may read
// a Parameter at once, but not while its module is moved or the Parameter is tied.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/operand.h"

namespace mx {

namespace detail {
struct Slot;
/// Returns true if backward() stores a gradient in this array: the array requires one, and is not the result
/// of an operation.
bool trains(const NDArray& array);
}  // namespace detail

class Parameter {
 public:
  /// Makes a Parameter without a slot, such as the bias of a layer that has none. Only defined(), copying and
  /// assigning are allowed.
  Parameter() = default;
  /// Makes a new slot that holds this very array, with its gradient.
  explicit Parameter(const NDArray& array);
  Parameter(const Parameter& other);
  Parameter& operator=(Parameter other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Parameter() = default;

  bool defined() const { return slot_ != nullptr; }
  /// Returns the array that is in the slot now. Throws InvalidArgument if there is no slot.
  const NDArray& array() const;
  operator const NDArray&() const { return array(); }
  operator Arg() const { return Arg(array()); }
  operator Operand() const { return Operand(array()); }
  /// A part of the array, as NDArray's operator[]: layer.weight[0], layer.weight[{0, colon}] = 1.
  template <class I>
  requires(!std::convertible_to<I, Arg> && requires(const NDArray& a, const I& i) { a[i]; }) View operator[](
      const I& index) const {
    return array()[index];
  }
  View operator[](std::initializer_list<Index> index) const { return array()[index]; }
  View operator[](const Arg& index) const { return array()[index]; }
  /// These operators change the array in place. If the array requires a gradient, they need a NoGrad scope,
  /// as those of NDArray do: { NoGrad pause; for (const auto& [name, p] : net.parameters()) p -= 0.1 *
  /// p.grad(); }
  const Parameter& operator+=(const Operand& b) const;
  const Parameter& operator-=(const Operand& b) const;
  const Parameter& operator*=(const Operand& b) const;
  const Parameter& operator/=(const Operand& b) const;
  const Parameter& copy_from(const NDArray& source,
                             std::source_location where = std::source_location::current()) const;
  const Parameter& fill_(Scalar value, std::source_location where = std::source_location::current()) const;
  /// The other members of the array: p->reshape({-1}).
  const NDArray* operator->() const { return &array(); }

  const Shape& shape() const { return array().shape(); }
  DType dtype() const { return array().dtype(); }
  Context context() const { return array().context(); }
  int rank() const { return array().rank(); }
  int64_t numel() const { return array().numel(); }
  NDArray detach() const { return array().detach(); }
  NDArray clone(std::source_location where = std::source_location::current()) const {
    return array().clone(where);
  }
  bool requires_grad() const { return array().requires_grad(); }
  NDArray grad() const { return array().grad(); }
  void set_grad(const NDArray& grad, std::source_location where = std::source_location::current()) const {
    array().set_grad(grad, where);
  }
  bool shares_memory(const NDArray& other) const { return array().shares_memory(other); }
  template <class T>
  std::vector<T> to_vector() const {
    return array().to_vector<T>();
  }
  template <class T>
  T item(std::source_location where = std::source_location::current()) const {
    return array().item<T>(where);
  }

  /// Makes this Parameter refer to the slot of `other`, for example for weights that an encoder and a decoder
  /// share. Optimisers see one parameter; a state_dict lists it under both names. The array that was in this
  /// slot is released. Throws InvalidArgument, and changes nothing, if shapes or types differ.
  void tie(const Parameter& other);
  /// Returns true if both refer to the same slot.
  bool same_as(const Parameter& other) const { return identity() == other.identity(); }

  // For modules.
  /// Returns a new slot for the same memory, detached from recorded operations. Throws InvalidArgument for an
  /// empty handle.
  static Parameter make(const NDArray& value);
  /// Puts another array into the slot.
  void replace(const NDArray& value) const;
  /// Returns a pointer that is equal for all Parameters of this slot. It changes if the Parameter is tied.
  const void* identity() const;

 private:
  std::shared_ptr<detail::Slot> slot_;
};

/// A parameter with its name in the model that listed it ("0.weight"); the name may be empty.
///
///   for (const auto& [name, parameter] : net.parameters()) ...
class NamedParameter : public Parameter {
 public:
  NamedParameter(const NDArray& array) : Parameter(array) {}
  NamedParameter(const Parameter& parameter) : Parameter(parameter) {}
  NamedParameter(std::string n, const NDArray& array) : Parameter(array), name(std::move(n)) {}
  NamedParameter(std::string n, const Parameter& parameter) : Parameter(parameter), name(std::move(n)) {}

  std::string name;

  /// For structured bindings: element 0 is the name, element 1 is this object. Element 1 has the name too, so
  /// a list to which it is added keeps the name.
  template <size_t I>
  const auto& get() const {
    if constexpr (I == 0) {
      return name;
    } else {
      return *this;
    }
  }
};

/// An ordered list of parameters with their names, from a module or made by a program.
///
///   Parameters all = net.parameters();
///   const auto is_bias = [](const NamedParameter& p) { return p.name.ends_with("bias"); };
///   optim::AdamW opt(all.where(std::not_fn(is_bias)), {.weight_decay = 0.1});
///   opt.add_group(all.where(is_bias), {.weight_decay = 0});
///
/// Each NDArray in a list gets a slot of its own, so a list that is made of NDArrays does not follow a module
/// that is moved.
class Parameters : public std::vector<NamedParameter> {
 public:
  using Base = std::vector<NamedParameter>;
  Parameters() = default;
  Parameters(std::initializer_list<NamedParameter> parameters) : Base(parameters) {}
  Parameters(const std::vector<Parameter>& parameters) : Base(parameters.begin(), parameters.end()) {}
  Parameters(const std::vector<NDArray>& arrays) : Base(arrays.begin(), arrays.end()) {}
  Parameters(const NamedArrays& arrays);

  using Base::at;
  /// Returns the first parameter with that name. Throws InvalidArgument, listing the names, if there is none.
  const NamedParameter& at(const std::string& name) const;
  /// Returns the parameters for which the predicate holds, in their order.
  Parameters where(const std::function<bool(const NamedParameter&)>& predicate) const;

  /// Converts to the arrays that are in the slots now.
  operator std::vector<NDArray>() const { return {begin(), end()}; }
  operator NamedArrays() const;
};

/// Throws InvalidArgument for a name under which no array can be saved: a name that is not UTF-8, or
/// "__metadata__", which the safetensors format reserves. `op` begins the message.
void check_saveable_name(const std::string& name, const char* op);

}  // namespace mx

template <>
struct std::tuple_size<mx::NamedParameter> : std::integral_constant<size_t, 2> {};
template <>
struct std::tuple_element<0, mx::NamedParameter> {
  using type = const std::string;
};
template <>
struct std::tuple_element<1, mx::NamedParameter> {
  using type = const mx::NamedParameter;
};
