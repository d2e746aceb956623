#include "ndarray/attrs.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace mx {
namespace {

template <class T>
void print_list(std::ostream& out, const std::vector<T>& list) {
  out << '[';
  for (size_t i = 0; i < list.size(); ++i) out << (i > 0 ? ", " : "") << list[i];
  out << ']';
}

[[noreturn]] void wrong_type(const char* name, const char* expected, const AttrValue& value) {
  throw InvalidArgument(detail::concat("[attributes] expected ", expected, " for '", name, "', got ",
                                       value.index() == 0 ? "nothing" : to_string(value)));
}

}  // namespace

std::string to_string(const AttrValue& value) {
  std::ostringstream out;
  out.precision(17);
  std::visit(
      [&out](const auto& v) {
        using V = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<V, std::monostate>) {
          out << "none";
        } else if constexpr (std::is_same_v<V, bool>) {
          out << (v ? "true" : "false");
        } else if constexpr (std::is_same_v<V, std::string>) {
          out << '"' << v << '"';
        } else if constexpr (std::is_same_v<V, std::vector<int64_t>> ||
                             std::is_same_v<V, std::vector<double>>) {
          print_list(out, v);
        } else {
          out << v;
        }
      },
      value);
  return out.str();
}

namespace detail {

AttrValue attr_to_value(bool value) { return value; }
AttrValue attr_to_value(int64_t value) { return value; }
AttrValue attr_to_value(double value) { return value; }
AttrValue attr_to_value(const std::string& value) { return value; }
AttrValue attr_to_value(DType value) { return std::string(to_string(value)); }
AttrValue attr_to_value(const Shape& value) { return std::vector<int64_t>(value.begin(), value.end()); }
AttrValue attr_to_value(const std::vector<int64_t>& value) { return value; }
AttrValue attr_to_value(const std::vector<double>& value) { return value; }
AttrValue attr_to_value(const Scalar& value) {
  if (value.category() == bool_) return value.truth();
  if (value.floating()) return value.real();
  return value.fits() ? AttrValue(value.integer()) : AttrValue(value.unsigned_integer());
}
template <class T>
AttrValue optional_to_value(const std::optional<T>& value) {
  return value ? attr_to_value(*value) : AttrValue(std::monostate{});
}

AttrValue attr_to_value(const std::optional<int64_t>& value) { return optional_to_value(value); }
AttrValue attr_to_value(const std::optional<DType>& value) { return optional_to_value(value); }
AttrValue attr_to_value(const std::optional<Scalar>& value) { return optional_to_value(value); }

void attr_from_value(bool& target, const AttrValue& value, const char* name) {
  const bool* v = std::get_if<bool>(&value);
  if (v == nullptr) wrong_type(name, "true or false", value);
  target = *v;
}

void attr_from_value(int64_t& target, const AttrValue& value, const char* name) {
  const int64_t* v = std::get_if<int64_t>(&value);
  if (v == nullptr) wrong_type(name, "an integer", value);
  target = *v;
}

void attr_from_value(double& target, const AttrValue& value, const char* name) {
  if (const double* v = std::get_if<double>(&value)) {
    target = *v;
  } else if (const int64_t* i = std::get_if<int64_t>(&value)) {
    target = static_cast<double>(*i);
  } else {
    wrong_type(name, "a number", value);
  }
}

void attr_from_value(std::string& target, const AttrValue& value, const char* name) {
  const std::string* v = std::get_if<std::string>(&value);
  if (v == nullptr) wrong_type(name, "a string", value);
  target = *v;
}

void attr_from_value(DType& target, const AttrValue& value, const char* name) {
  const std::string* v = std::get_if<std::string>(&value);
  if (v == nullptr) wrong_type(name, "the name of a dtype", value);
  target = dtype_from_string(*v);
}

void attr_from_value(Shape& target, const AttrValue& value, const char* name) {
  const auto* v = std::get_if<std::vector<int64_t>>(&value);
  if (v == nullptr) wrong_type(name, "a list of integers", value);
  target = Shape(*v);
}

void attr_from_value(std::vector<int64_t>& target, const AttrValue& value, const char* name) {
  const auto* v = std::get_if<std::vector<int64_t>>(&value);
  if (v == nullptr) wrong_type(name, "a list of integers", value);
  target = *v;
}

void attr_from_value(std::vector<double>& target, const AttrValue& value, const char* name) {
  if (const auto* v = std::get_if<std::vector<double>>(&value)) {
    target = *v;
  } else if (const auto* i = std::get_if<std::vector<int64_t>>(&value)) {
    target.assign(i->begin(), i->end());
  } else {
    wrong_type(name, "a list of numbers", value);
  }
}

void attr_from_value(Scalar& target, const AttrValue& value, const char* name) {
  std::visit(
      [&](const auto& v) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) {
          target = v;
        } else {
          wrong_type(name, "a number", value);
        }
      },
      value);
}

template <class T>
void optional_from_value(std::optional<T>& target, const AttrValue& value, const char* name) {
  if (std::holds_alternative<std::monostate>(value)) {
    target.reset();
  } else {
    T inner{};
    attr_from_value(inner, value, name);
    target = inner;
  }
}

void attr_from_value(std::optional<int64_t>& target, const AttrValue& value, const char* name) {
  optional_from_value(target, value, name);
}
void attr_from_value(std::optional<DType>& target, const AttrValue& value, const char* name) {
  optional_from_value(target, value, name);
}
void attr_from_value(std::optional<Scalar>& target, const AttrValue& value, const char* name) {
  optional_from_value(target, value, name);
}

}  // namespace detail

Attrs::Attrs(Attrs&& other) noexcept : type_(std::exchange(other.type_, nullptr)) {
  if (type_ == nullptr) return;
  if (!inside()) {
    heap_ = other.heap_;
  } else if (type_->trivial) {
    std::memcpy(inline_, other.inline_, type_->bytes);
  } else {
    // Attributes of this size hold strings and vectors, so the copy throws only if memory runs out.
    type_->copy(inline_, other.inline_);
    type_->destroy(other.inline_);
  }
}

Attrs& Attrs::operator=(Attrs other) noexcept {
  if (type_ != nullptr) clear();
  ::new (this) Attrs(std::move(other));
  return *this;
}

void* Attrs::allocate() {
  if (!inside()) heap_ = ::operator new (type_->bytes, std::align_val_t{16});
  return place();
}

void Attrs::clear() noexcept {
  if (!type_->trivial) type_->destroy(place());
  if (!inside()) ::operator delete (heap_, std::align_val_t{16});
  type_ = nullptr;
}

Attrs Attrs::from_map(const AttrType* type, const AttrMap& map, const char* op) {
  Attrs attrs;
  if (type == nullptr) {
    MX_CHECK(map.empty(), InvalidArgument, "[", op, "] expected no attributes, got '", map.begin()->first,
             "'");
    return attrs;
  }
  attrs.type_ = type;
  type->construct(attrs.allocate());
  for (const auto& [name, value] : map) {
    const AttrField* found = nullptr;
    std::string known;
    for (const AttrField& field : type->fields()) {
      if (field.name == name) found = &field;
      known += (known.empty() ? "" : ", ") + field.name;
    }
    MX_CHECK(found != nullptr, InvalidArgument, "[", op, "] expected one of the attributes ", known,
             ", got '", name, "'");
    found->set(attrs.place(), value);
  }
  return attrs;
}

bool Attrs::all_finite() const {
  if (type_ == nullptr) return true;
  for (const AttrField& field : type_->fields()) {
    const AttrValue value = field.get(place());
    if (const double* number = std::get_if<double>(&value))
      if (!std::isfinite(*number)) return false;
  }
  return true;
}

AttrMap Attrs::to_map() const {
  AttrMap map;
  if (type_ == nullptr) return map;
  for (const AttrField& field : type_->fields()) map[field.name] = field.get(place());
  return map;
}

}  // namespace mx
