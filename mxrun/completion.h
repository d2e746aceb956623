// Completion scripts and the man page, made from the table of options, so that they cannot miss one.
//
// Thread-safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "mxrun/options.h"

namespace mx::launch {

/// Returns the script of "bash", "zsh" or "fish". Throws InvalidArgument for another shell.
std::string completion_script(const std::string& shell, const std::vector<OptionHelp>& options);

/// Returns the man page mxrun(1), in the language of man pages.
std::string man_page(const std::vector<OptionHelp>& options);

}  // namespace mx::launch
