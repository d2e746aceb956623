// NDArray's members that are functions of operators: x.sum(), x.mean(1), x.sort(). Including this header (or
// operators/operators.h) makes them work.
#pragma once

namespace mx::detail {

/// Fills the table of ndarray/members.h. May be called again.
bool install_members();
/// Here, so that a program that includes this has them, from a static library too.
inline const bool kMembersInstalled = install_members();

}  // namespace mx::detail
