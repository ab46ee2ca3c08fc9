#pragma once

#include <iosfwd>
#include <string>

namespace tessera::tsrun {

/// Prints a script that completes tsrun's options, the words that an option accepts, files and folders, and, behind
/// PROGRAM, what the completion of that program offers. Generated from option_table(). `shell`: bash, zsh or fish.
///
///     bash   source <(tsrun --completion bash)
///     zsh    source <(tsrun --completion zsh), after compinit
///     fish   tsrun --completion fish | source
void print_completion(std::ostream& out, const std::string& shell);

/// Prints the manual page (roff): tsrun --man | man -l -
void print_manual(std::ostream& out);

}  // namespace tessera::tsrun
