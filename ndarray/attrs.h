// Attrs: the attributes of one call of an operator, type-erased.
//
// An operator's attributes are a plain struct that lists its fields:
//
//   struct SoftmaxAttrs {
//     int64_t axis = -1;
//     template <class V>
//     static void fields(V&& v) {
//       v("axis", &SoftmaxAttrs::axis, "the dimension that sums to one");
//     }
//   };
//
// The list provides names for graphs and files, defaults and the reference page. Fields may be bool,
// int64_t, double, std::string, DType, Shape, Scalar, std::vector<int64_t>, std::vector<double>, and
// std::optional of int64_t, DType and Scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/dtype.h"
#include "ndarray/scalar.h"
#include "ndarray/shape.h"

namespace mx {

/// The value of a field of any type. monostate: an empty optional; uint64_t: an integer of 2^63 or more.
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, uint64_t>;
/// Fields by name.
using AttrMap = std::map<std::string, AttrValue>;

/// "axis=-1", "sizes=[2, 3]" and the like.
std::string to_string(const AttrValue& value);

struct AttrField {
  std::string name;
  std::string
      type;  ///< "int", "float", "bool", "string", "dtype", "number", "ints", "floats", "int or none", ...
  std::string doc;
  std::function<AttrValue(const void*)> get;
  std::function<void(void*, const AttrValue&)> set;  ///< throws InvalidArgument for a value of another type
};

/// The description of an attribute struct at run time.
struct AttrType {
  size_t bytes;
  bool trivial;  ///< may be copied as bytes, and needs no destructor
  void (*construct)(void* place);
  void (*copy)(void* place, const void* from);
  void (*destroy)(void* place) noexcept;
  const std::vector<AttrField>& (*fields)();
};

namespace detail {

AttrValue attr_to_value(bool value);
AttrValue attr_to_value(int64_t value);
AttrValue attr_to_value(double value);
AttrValue attr_to_value(const std::string& value);
AttrValue attr_to_value(DType value);
AttrValue attr_to_value(const Shape& value);
AttrValue attr_to_value(const std::vector<int64_t>& value);
AttrValue attr_to_value(const std::vector<double>& value);
AttrValue attr_to_value(const std::optional<int64_t>& value);
AttrValue attr_to_value(const std::optional<DType>& value);
AttrValue attr_to_value(const Scalar& value);
AttrValue attr_to_value(const std::optional<Scalar>& value);

void attr_from_value(bool& target, const AttrValue& value, const char* name);
void attr_from_value(int64_t& target, const AttrValue& value, const char* name);
void attr_from_value(double& target, const AttrValue& value, const char* name);
void attr_from_value(std::string& target, const AttrValue& value, const char* name);
void attr_from_value(DType& target, const AttrValue& value, const char* name);
void attr_from_value(Shape& target, const AttrValue& value, const char* name);
void attr_from_value(std::vector<int64_t>& target, const AttrValue& value, const char* name);
void attr_from_value(std::vector<double>& target, const AttrValue& value, const char* name);
void attr_from_value(std::optional<int64_t>& target, const AttrValue& value, const char* name);
void attr_from_value(std::optional<DType>& target, const AttrValue& value, const char* name);
void attr_from_value(Scalar& target, const AttrValue& value, const char* name);
void attr_from_value(std::optional<Scalar>& target, const AttrValue& value, const char* name);

template <class F>
constexpr const char* attr_type_name() {
  if constexpr (std::is_same_v<F, bool>) return "bool";
  if constexpr (std::is_same_v<F, int64_t>) return "int";
  if constexpr (std::is_same_v<F, double>) return "float";
  if constexpr (std::is_same_v<F, std::string>) return "string";
  if constexpr (std::is_same_v<F, DType>) return "dtype";
  if constexpr (std::is_same_v<F, Shape> || std::is_same_v<F, std::vector<int64_t>>) return "ints";
  if constexpr (std::is_same_v<F, std::vector<double>>) return "floats";
  if constexpr (std::is_same_v<F, std::optional<int64_t>>) return "int or none";
  if constexpr (std::is_same_v<F, std::optional<DType>>) return "dtype or none";
  if constexpr (std::is_same_v<F, Scalar>) return "number";
  if constexpr (std::is_same_v<F, std::optional<Scalar>>) return "number or none";
}

template <class T>
const std::vector<AttrField>& attr_fields() {
  static const std::vector<AttrField> fields = [] {
    std::vector<AttrField> list;
    T::fields([&list]<class F>(const char* name, F T::*member, const char* doc) {
      list.push_back(
          {name, attr_type_name<F>(), doc,
           [member](const void* attrs) { return attr_to_value(static_cast<const T*>(attrs)->*member); },
           [member, name](void* attrs, const AttrValue& value) {
             attr_from_value(static_cast<T*>(attrs)->*member, value, name);
           }});
    });
    return list;
  }();
  return fields;
}

}  // namespace detail

template <class T>
inline constexpr AttrType kAttrType = {
    sizeof(T),
    std::is_trivially_copyable_v<T>&& std::is_trivially_destructible_v<T>,
    [](void* place) { ::new (place) T(); },
    [](void* place, const void* from) { ::new (place) T(*static_cast<const T*>(from)); },
    [](void* place) noexcept { static_cast<T*>(place)->~T(); },
    &detail::attr_fields<T>};

class Attrs {
 public:
  Attrs() = default;
  template <class T>
  requires(std::is_class_v<T> && !std::is_same_v<T, Attrs>) Attrs(const T& attrs) : type_(&kAttrType<T>) {
    static_assert(alignof(T) <= 16);
    ::new (allocate()) T(attrs);
  }
  Attrs(const Attrs& other) : type_(other.type_) {
    if (type_ != nullptr) type_->copy(allocate(), other.place());
  }
  Attrs(Attrs&& other) noexcept;
  Attrs& operator=(Attrs other) noexcept;
  ~Attrs() {
    if (type_ != nullptr) clear();
  }

  /// Makes attributes from names and values; fields that are not named have their defaults. Throws
  /// InvalidArgument for an unknown name (naming `op` and listing the known names) and for a value of the
  /// wrong type.
  static Attrs from_map(const AttrType* type, const AttrMap& map, const char* op);
  AttrMap to_map() const;
  /// Returns false if a field holds an infinity or NaN.
  bool all_finite() const;

  bool empty() const { return type_ == nullptr; }
  const AttrType* type() const { return type_; }
  /// Precondition: T is the type from which this was made.
  template <class T>
  const T& get() const {
    MX_ASSERT(type_ == &kAttrType<T>);
    return *static_cast<const T*>(place());
  }

 private:
  static constexpr size_t kInline = 48;

  bool inside() const { return type_->bytes <= kInline; }
  void* place() { return inside() ? static_cast<void*>(inline_) : heap_; }
  const void* place() const { return inside() ? static_cast<const void*>(inline_) : heap_; }
  void* allocate();
  void clear() noexcept;

  const AttrType* type_ = nullptr;
  union {
    alignas(16) std::byte inline_[kInline];
    void* heap_;
  };
};

}  // namespace mx
