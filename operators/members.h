// Members of NDArray that call operators: x.sum(), x.mean(1), x.sort(). Including this header (or
// operators/operators.h) makes them work.
#pragma once

namespace mx::detail {

/// Fills the table of ndarray/members.h. May be called again.
bool install_members();
/// Defined in the header, so that every program that includes it installs the members, even if it links a
/// static library.
inline const bool kMembersInstalled = install_members();

}  // namespace mx::detail
