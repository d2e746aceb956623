// Modules: shared libraries that bring a communicator over a library that programs should not depend on.
//
// "mpi" and "nccl" are modules. A program is neither linked with MPI nor with NCCL, so it starts on machines
// without them. load_module() opens the library on first use, and says what is missing if it cannot.
//
// Modules are looked for in the folders of the environment variable MX_MODULE_PATH (separated by colons),
// then in `../modules` and `../lib/mx` beside the program, in the folder for which mx was configured, and at
// last where the dynamic linker looks on behalf of the program. The package mx of CMake adds the folder of
// its modules to the run path of programs that are linked with it, so the installed tree may lie anywhere.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/place.h"
#include "comm/rendezvous.h"
#include "comm/transport.h"

namespace mx::comm {

/// What a module needs to make a communicator.
struct ModuleRequest {
  Place place;
  Rendezvous* rendezvous = nullptr;  ///< may be null for "mpi", which has an exchange of its own
  std::string key;                   ///< unique name of the group among the entries of the rendezvous
  int64_t timeout_ms = 60000;        ///< default time limit of calls, and of making the group
  /// Connects the ranks of a group of several. "nccl" compares calls over it; null for "mpi", which needs
  /// none.
  std::shared_ptr<Transport> messages{};
};

class Module {
 public:
  virtual ~Module() = default;
  /// Changes when modules and programs no longer fit together.
  virtual int interface_version() const = 0;
  /// Makes a group of all workers. A collective call. Throws CommunicationError.
  virtual std::shared_ptr<Communicator> make(const ModuleRequest& request) = 0;
  /// Returns the value of the first worker on every worker. A collective call, before there is a rendezvous.
  /// Throws InvalidState in modules without an exchange of their own.
  virtual std::string share_from_first(const Place& place, const std::string& value) = 0;
  /// Called when the process ends with status 0, after the default engine has run its operations. May wait
  /// for the other processes; with `after_failure`, some of them may never come.
  virtual void finish([[maybe_unused]] bool after_failure) noexcept {}
};

inline constexpr int kModuleInterface = 6;
/// The function that each module exports; returns an object that lives as long as the process.
inline constexpr const char* kModuleFunction = "mx_comm_module";

/// Returns the module "mpi" or "nccl". Throws InvalidState if it cannot be loaded; the message lists the
/// places and what was wrong at each.
Module& load_module(const std::string& name);
/// Calls finish() of every module that was loaded. Runs when the process ends with status 0.
void finish_modules(bool after_failure) noexcept;
/// Sets a function that is called with the exit status when the process ends, before finish_modules(): the
/// modules still carry what it sends. It returns whether a failure of the job is known. Called before main(),
/// by the part of the program that has groups.
void call_before_modules_finish(bool (*function)(int status)) noexcept;
/// The folders in which load_module() looks itself, in this order.
std::vector<std::string> module_folders();

}  // namespace mx::comm
