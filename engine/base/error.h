// The tree of exceptions that mx throws.
//
// Every error of the library derives from mx::Error, so `catch (const mx::Error&)` catches them all. A
// message says where the error is, what was expected and what was got: "[name] expected ..., got ...".
//
// Thread-safety: exception objects are immutable after construction; one object may be rethrown by many
// threads at once (that is how the engine hands one root cause to every waiter).
#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

namespace mx {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// An argument was wrong: shape, range, null function, unknown name, unparsable setting.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A handle was used after its object was deleted, or with an engine that did not make it.
class InvalidHandle : public Error {
 public:
  using Error::Error;
};

/// The call is not allowed here and now: waiting inside an operation, pushing after shutdown, using a
/// process's engine in its forked child.
class InvalidState : public Error {
 public:
  using Error::Error;
};

/// Memory of a device, or of the host, is exhausted.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device reported an error, or is lost.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A deadline passed.
class Timeout : public Error {
 public:
  using Error::Error;
};

/// The operation was skipped because the engine was told to cancel.
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// An operation failed with something that is not an mx::Error: the message carries the operation's name,
/// the place of its push and what the original exception said.
class OperationError : public Error {
 public:
  using Error::Error;
};

/// An operation touched a variable that it had not declared (engine mode `check`).
class AccessError : public Error {
 public:
  using Error::Error;
};

/// Communication between processes failed.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// Another process of the job is lost: it ended, its connection broke, or it sends no heartbeats. The message
/// names its rank and host.
class PeerLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Processes disagree: other calls, shapes or types, or a message that is malformed.
class ProtocolError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// A process could not show that it belongs to the job.
class AuthenticationError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// An operation produced a value that is not finite from finite inputs, while that is checked.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// Returns the text of the current exception, whatever its type. Precondition: called inside a catch block.
std::string current_exception_text();

/// Returns the current exception with the message that `message` makes from its text. An mx error keeps its
/// type, bad_alloc and length_error become OutOfMemory, anything else an OperationError. Without memory for
/// that, returns the exception unchanged. Precondition: called inside a catch block.
std::exception_ptr rewrite_current_exception(
    const std::function<std::string(const std::string& text)>& message);

}  // namespace mx
