#include "engine/base/error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <typeinfo>

namespace mx {

namespace {

std::string demangle(const char* name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                              std::free);
  return status == 0 ? text.get() : name;
}

// An OperationError with the original exception nested in it.
class ForeignError : public OperationError, public std::nested_exception {
 public:
  using OperationError::OperationError;
};

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

namespace {

// Derived types are caught before their bases.
std::exception_ptr rewritten(const std::function<std::string(const std::string& text)>& message) {
  try {
    throw;
  } catch (const ForeignError& e) {
    return std::make_exception_ptr(ForeignError(message(e.what())));
  } catch (const OutOfMemory& e) {
    return std::make_exception_ptr(OutOfMemory(message(e.what())));
  } catch (const InvalidArgument& e) {
    return std::make_exception_ptr(InvalidArgument(message(e.what())));
  } catch (const InvalidHandle& e) {
    return std::make_exception_ptr(InvalidHandle(message(e.what())));
  } catch (const InvalidState& e) {
    return std::make_exception_ptr(InvalidState(message(e.what())));
  } catch (const DeviceError& e) {
    return std::make_exception_ptr(DeviceError(message(e.what())));
  } catch (const Timeout& e) {
    return std::make_exception_ptr(Timeout(message(e.what())));
  } catch (const Cancelled& e) {
    return std::make_exception_ptr(Cancelled(message(e.what())));
  } catch (const AccessError& e) {
    return std::make_exception_ptr(AccessError(message(e.what())));
  } catch (const NumericError& e) {
    return std::make_exception_ptr(NumericError(message(e.what())));
  } catch (const PeerLost& e) {
    return std::make_exception_ptr(PeerLost(message(e.what())));
  } catch (const ProtocolError& e) {
    return std::make_exception_ptr(ProtocolError(message(e.what())));
  } catch (const AuthenticationError& e) {
    return std::make_exception_ptr(AuthenticationError(message(e.what())));
  } catch (const CommunicationError& e) {
    return std::make_exception_ptr(CommunicationError(message(e.what())));
  } catch (const OperationError& e) {
    return std::make_exception_ptr(OperationError(message(e.what())));
  } catch (const std::bad_alloc& e) {
    return std::make_exception_ptr(OutOfMemory(message(e.what())));
  } catch (const std::length_error& e) {  // a container's size is beyond every memory
    return std::make_exception_ptr(OutOfMemory(message(e.what())));
  } catch (...) {
    return std::make_exception_ptr(ForeignError(message(current_exception_text())));
  }
}

}  // namespace

std::exception_ptr rewrite_current_exception(
    const std::function<std::string(const std::string& text)>& message) {
  const std::exception_ptr original = std::current_exception();
  try {
    return rewritten(message);
  } catch (const std::bad_alloc&) {
    return original;
  }
}

}  // namespace mx
