#include "mxrun/completion.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/environment.h"

namespace mx::launch {
namespace {

/// The values of an option whose kind is "a|b|c"; empty if any value will do.
std::vector<std::string> choices_of(const OptionHelp& option) {
  std::vector<std::string> choices;
  if (option.kind.find('|') == std::string::npos) return choices;
  for (size_t at = 0; at <= option.kind.size();) {
    const size_t end = std::min(option.kind.find('|', at), option.kind.size());
    choices.push_back(option.kind.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

bool takes_file(const OptionHelp& option) { return option.kind == "FILE"; }
bool takes_folder(const OptionHelp& option) { return option.kind == "FOLDER"; }

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

/// Returns the text with a backslash before each of `special`.
std::string escaped(const std::string& text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Returns the text in single quotes, for zsh.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string bash_script(const std::vector<OptionHelp>& options) {
  std::vector<std::string> all, with_value;
  std::string values;
  for (const OptionHelp& option : options) {
    all.insert(all.end(), option.names.begin(), option.names.end());
    if (option.kind.empty()) continue;
    with_value.insert(with_value.end(), option.names.begin(), option.names.end());
    const std::string names = joined(option.names, "|");
    if (const std::vector<std::string> choices = choices_of(option); !choices.empty())
      values += "    " + names + ") COMPREPLY=($(compgen -W '" + joined(choices, " ") +
                "' -- \"$cur\")); return;;\n";
    else if (takes_file(option))
      values += "    " + names + ") COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n";
    else if (takes_folder(option))
      values += "    " + names + ") COMPREPLY=($(compgen -d -- \"$cur\")); return;;\n";
  }
  return "# Completion of mxrun for bash: source <(mxrun --completion bash)\n"
         "_mxrun() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i word\n"
         "  COMPREPLY=()\n"
         "  # What follows the program is the program's.\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    case $word in\n"
         "    " +
         joined(with_value, "|") +
         ") ((++i));;\n"
         "    -*) ;;\n"
         "    *) if declare -F _command_offset >/dev/null; then _command_offset $i\n"
         "       else COMPREPLY=($(compgen -f -- \"$cur\")); fi; return;;\n"
         "    esac\n"
         "  done\n"
         "  case $prev in\n" +
         values + "    " + joined(with_value, "|") +
         ") return;;\n"
         "  esac\n"
         "  case $cur in\n"
         "    -*) COMPREPLY=($(compgen -W '" +
         joined(all, " ") +
         "' -- \"$cur\"));;\n"
         "    *) COMPREPLY=($(compgen -c -- \"$cur\") $(compgen -f -- \"$cur\"));;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _mxrun mxrun\n";
}

std::string zsh_script(const std::vector<OptionHelp>& options) {
  std::string out =
      "#compdef mxrun\n"
      "# Completion of mxrun for zsh: mxrun --completion zsh > a folder of $fpath/_mxrun\n"
      "_mxrun() {\n  _arguments -S -s \\\n";
  for (const OptionHelp& option : options) {
    std::string value;
    if (!option.kind.empty()) {
      value = mx::detail::concat(":", escaped(option.kind, ":\\[]"), ":");
      if (const std::vector<std::string> choices = choices_of(option); !choices.empty())
        value += mx::detail::concat("(", joined(choices, " "), ")");
      else if (takes_file(option))
        value += "_files";
      else if (takes_folder(option))
        value += "_files -/";
      else
        value += " ";
    }
    const std::string exclusive =
        option.repeatable ? "*" : mx::detail::concat("(", joined(option.names, " "), ")");
    for (const std::string& name : option.names)
      out += mx::detail::concat(
          "    ",
          in_quotes(mx::detail::concat(exclusive, name, "[", escaped(option.help, ":\\[]"), "]", value)),
          " \\\n");
  }
  return out +
         "    '(-)1:program:_command_names -e' \\\n    '*::arguments:_normal'\n}\n"
         "if [ \"$funcstack[1]\" = _mxrun ]; then _mxrun \"$@\"; else compdef _mxrun mxrun; fi\n";
}

std::string fish_script(const std::vector<OptionHelp>& options) {
  std::string out =
      "# Completion of mxrun for fish: mxrun --completion fish > ~/.config/fish/completions/mxrun.fish\n";
  for (const OptionHelp& option : options) {
    out += "complete -c mxrun";
    for (const std::string& name : option.names)
      out += name.starts_with("--") ? mx::detail::concat(" -l ", name.substr(2))
                                    : mx::detail::concat(" -s ", name.substr(1));
    if (const std::vector<std::string> choices = choices_of(option); !choices.empty())
      out += mx::detail::concat(" -x -a '", joined(choices, " "), "'");
    else if (takes_file(option) || takes_folder(option))
      out += " -r -F";
    else if (!option.kind.empty())
      out += " -x";
    out += mx::detail::concat(" -d '", escaped(option.help, "\\'"), "'\n");
  }
  return out;
}

/// Text of a man page: a hyphen is a minus sign, and a backslash is written \e.
std::string man_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\e";
    else
      out += c;
  }
  // A dot or an apostrophe at the start of a line would be a command.
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

constexpr char kManBefore[] =
    R"(.\" Written by mxrun --man; tests/mxrun/launchers_completion_test.py compares it.
.TH MXRUN 1
.SH NAME
mxrun \- start the processes of a program on one or many machines, and end them together
.SH SYNOPSIS
.B mxrun
.RI [ options ]
.I program
.RI [ arguments ]
.br
.B mxrun top
.RI [ job ]
.RB [ \-\-once ]
.RB [ \-\-interval
.IR seconds ]
.SH DESCRIPTION
mxrun starts
.B \-n
copies of a program, tells each its rank, passes on their output, and ends all of them when one fails.
One agent on each node is the parent of its processes. No process of the job outlives mxrun.
.PP
With
.B \-H
or
.B \-\-hostfile
the agents are started by ssh, within an allocation of Slurm by srun, and otherwise on this machine.
.PP
.B mxrun top
shows the processes of a job that runs on this machine, again and again until it ends: their states and steps, and
what those of this machine use. A program of that name is started by
.BR "mxrun \-\- top" .
.SH OPTIONS
)";

constexpr char kManAfter[] = R"(.SH EXIT STATUS
That of the first process that failed, or 128 + the number of the signal that ended it. Never that of ssh, srun or mpirun.
.TP
0
every worker succeeded
.TP
2
wrong usage
.TP
69
the rendezvous failed
.TP
71
a port is taken
.TP
77
a wrong secret or certificate, connections that only one side encrypts, or a secret or key that others can read
.TP
78
wrong configuration
.TP
124
the agents did not come in time
.TP
126, 127
the program cannot be executed, or was not found
.TP
129, 130, 143
mxrun was ended by SIGHUP, SIGINT or SIGTERM
.TP
137
a process was killed by SIGKILL (128 + 9), by mxrun if it sent no heartbeats, or an agent is lost
.SH ENVIRONMENT
mxrun sets these variables for each process, and
.B \-x
refuses them:
.PP
)";

constexpr char kManEnd[] = R"(
.PP
mxrun itself reads these:
.TP
MX_SSH, MX_SRUN, MX_MPIRUN
the commands of the launchers, with their first arguments; default ssh, srun and mpirun
.TP
MX_MXRUN
path of mxrun on the other machines; default: the path here
.SH EXAMPLES
.nf
mxrun \-n 4 train_mnist
mxrun \-H n0:8,n1:8 \-\-rdzv eth0:0 train_mnist
salloc \-N 2 mxrun \-\-rdzv eth0:0 \-\-nproc\-per\-node 4 train_mnist
mxrun \-n 8 \-\-launcher k8s \-\-dry\-run \-\-k8s image=IMAGE train_mnist | kubectl apply \-f \-
.fi
)";

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<OptionHelp>& options) {
  if (shell == "bash") return bash_script(options);
  if (shell == "zsh") return zsh_script(options);
  MX_CHECK(shell == "fish", InvalidArgument, "[mxrun] --completion: expected bash, zsh or fish, got ", shell);
  return fish_script(options);
}

std::string man_page(const std::vector<OptionHelp>& options) {
  std::string out = kManBefore, group;
  for (const OptionHelp& option : options) {
    if (option.group != group) {
      group = option.group;
      out += mx::detail::concat(".SS ", man_text(group), "\n");
    }
    std::string names;
    for (const std::string& name : option.names) {
      names += names.empty() ? "\\fB" : ", \\fB";
      names += man_text(name) + "\\fR";
    }
    if (!option.kind.empty()) names += mx::detail::concat(" \\fI", man_text(option.kind), "\\fR");
    out += ".TP\n" + names + "\n" + man_text(option.help) + "\n";
  }
  return out + kManAfter + man_text(joined(variables_of_mxrun(), " ")) + kManEnd;
}

}  // namespace mx::launch
