// Parameter: the place of a module in which an array stands.
//
//   struct Scale : nn::Module {
//     nn::Parameter factor;
//     explicit Scale(int64_t d) : factor(add_parameter("factor", ones({d}))) {}
//     NDArray forward(const NDArray& x) { return x * factor; }
//   };
//
// A handle: copies mean the same place. Moving a module to a device or to another type puts another array
// into the place, which everybody who has the Parameter sees; an NDArray that was taken from it earlier stays
// what it was. So modules keep Parameters, not NDArrays. A buffer (an array that belongs to a module and is
// not trained) has such a place as well.
//
// A Parameter may be given wherever a function takes an array. Thread-safety: any threads may read; none may
// while the module is moved or the Parameter is tied.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "ndarray/ndarray.h"
#include "operators/operand.h"

namespace mx {

/// A base so that functions on arrays are found for what is used like one (argument-dependent lookup).
struct ActsAsArray {};

namespace nn {

namespace detail {
struct Slot;
/// Does backward() leave a gradient here: is one required, and is the array no result of operations?
bool trains(const NDArray& array);
}  // namespace detail

class Parameter : private ActsAsArray {
 public:
  /// No place: what a layer without a bias has. Only defined(), copying and assigning are allowed.
  Parameter() = default;
  Parameter(const Parameter& other);
  Parameter& operator=(Parameter other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Parameter() = default;

  bool defined() const { return slot_ != nullptr; }
  /// What stands there now. Throws InvalidArgument when there is no place.
  const NDArray& array() const;
  operator const NDArray&() const { return array(); }
  operator Arg() const { return Arg(array()); }
  operator Operand() const { return Operand(array()); }

  const Shape& shape() const { return array().shape(); }
  DType dtype() const { return array().dtype(); }
  Context context() const { return array().context(); }
  int64_t numel() const { return array().numel(); }
  NDArray grad() const { return array().grad(); }

  /// From now on this place is that of `other` (weights that an encoder and a decoder share): both show the
  /// same array, which is one parameter for optimisers and stands under both names in a state_dict. The array
  /// that stood here goes. Throws InvalidArgument, and changes nothing, when shapes or types differ.
  void tie(const Parameter& other);
  /// Do both mean the same place?
  bool same_as(const Parameter& other) const;

  // For modules.
  /// A new place for this array, without what was recorded of it. Throws InvalidArgument for an empty handle.
  static Parameter make(const NDArray& value);
  /// Puts another array there.
  void replace(const NDArray& value) const;
  /// The same for all Parameters that mean this place, until it is tied.
  const void* identity() const;

 private:
  std::shared_ptr<detail::Slot> slot_;
};

}  // namespace nn
}  // namespace mx
