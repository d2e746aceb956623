// What an optimiser was made of: the parameters, groups and options that the program has chosen. A trainer
// compares the choices for whole parameters and for portions of them, and those of all processes. Internal.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "operators/parameter.h"
#include "optim/optimizers.h"

namespace mx::nn::detail {

struct Choice {
  std::vector<std::string> groups;  ///< by group: the rule and its options, as text
  struct Member {
    size_t place;  ///< of the parameter in the replica
    size_t group;
    std::string name;
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> members;
};

/// Throws InvalidArgument for a null pointer, and for an optimiser with a parameter that the replica does not
/// have.
Choice choice_of(const Parameters& replica, const optim::Optimizer* optimizer);
/// Throws InvalidArgument for an optimiser without parameters, which would train nothing.
void check_not_empty(const optim::Optimizer& optimizer, const Parameters& replica);
/// Throws InvalidArgument if the program's function has made another optimiser from the portions than from
/// the whole parameters. It sees that portions are flat and of other sizes.
void check_same_choice(const Choice& whole, const Choice& portions);
/// Compares the choices of all processes of the store; null: this one has failed to choose. Blocks; all
/// processes call it. Throws ProtocolError, which names the processes, if another one has failed or has
/// chosen otherwise. `prefix` is that of the trainer's keys.
void compare_choices(KVStore& store, const std::string& prefix, const Choice* choice,
                     const Parameters& replica, std::source_location where);

}  // namespace mx::nn::detail
