#include "engine/base/error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace mx {

namespace {

std::string demangle(const char* name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                              std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

std::string current_exception_text() {
  try {
    throw;
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return demangle(typeid(e).name()) + ": " + e.what();
  } catch (const std::string& e) {
    return e;
  } catch (const char* e) {
    return e != nullptr ? e : "null const char*";
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return "exception of type " + (type != nullptr ? demangle(type->name()) : std::string("unknown"));
  }
}

}  // namespace mx
